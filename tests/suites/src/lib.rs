//! The suites are in `tests/`: contract, faults, simulation, end to end.
