//! The suites are in `tests/`: contract, faults, simulation, architecture, end to end.
