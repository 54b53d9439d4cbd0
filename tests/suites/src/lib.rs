//! The suites live in `tests/`: contract, faults, simulation, architecture, end to end.
