//! Nothing: its manifest switches on features of dependencies, so that tests of a part of the workspace and of all of
//! it share what is compiled. A development dependency of the other crates; never published.
