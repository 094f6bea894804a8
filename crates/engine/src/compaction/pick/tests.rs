//! Text tests of the picker.
