//! Settings of an OPTIONS file that have no effect here. They are kept unchanged and written to the next OPTIONS
//! file, so that RocksDB still finds them after Ironstone has written the file.
//!
//! Kept are unknown keys and sections, values that Ironstone does not support, and values that tune nothing here. A
//! setting that is changed later, by name or as a field, is no longer kept.

/// A setting as in an OPTIONS file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) section: &'static str,
    pub(super) name: String,
    /// The text after the `=`.
    pub(super) value: String,
    /// The value that would have been written instead. The setting is kept as long as that does not change.
    pub(super) instead: Option<String>,
    /// Whether the setting requests something that Ironstone does not provide.
    pub(super) asks: bool,
}

/// Settings without effect, of a database or of a column family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    settings: Vec<Setting>,
    /// The lines of unknown sections, including their headers.
    pub(super) foreign: Vec<String>,
    /// The RocksDB release that wrote the file.
    pub(super) version: (u32, u32, u32),
}

impl Kept {
    /// The value of a setting, if it is kept.
    #[doc(hidden)]
    pub fn get(&self, section: &str, name: &str) -> Option<&str> {
        self.find(section, name).map(|s| s.value.as_str())
    }

    fn find(&self, section: &str, name: &str) -> Option<&Setting> {
        let mut all = self.settings.iter();
        all.find(|s| s.section == section && s.name == name)
    }

    pub(super) fn keep(&mut self, setting: Setting) {
        self.forget(setting.section, &setting.name);
        self.settings.push(setting);
    }

    pub(super) fn forget(&mut self, section: &str, name: &str) {
        self.settings
            .retain(|s| s.section != section || s.name != name);
    }

    /// Whether nothing is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.settings.is_empty() && self.foreign.is_empty()
    }

    /// The settings of a section.
    pub(super) fn of(&self, section: &'static str) -> impl Iterator<Item = &Setting> {
        self.settings.iter().filter(move |s| s.section == section)
    }

    /// The value to write for an option: the kept one, unless the option was changed since.
    pub(super) fn instead_of(
        &self,
        section: &str,
        name: &str,
        ours: Option<String>,
    ) -> Option<String> {
        match self.find(section, name) {
            Some(kept) if kept.instead == ours => Some(kept.value.clone()),
            _ => ours,
        }
    }

    /// Name and value of the settings that request something that Ironstone does not provide, for LOG.
    #[doc(hidden)]
    pub fn told(&self) -> impl Iterator<Item = (&str, &str)> {
        let asking = self.settings.iter().filter(|s| s.asks);
        asking.map(|s| (s.name.as_str(), s.value.as_str()))
    }

    /// The headers of the unknown sections.
    #[doc(hidden)]
    pub fn sections(&self) -> impl Iterator<Item = &str> {
        let headers = self.foreign.iter().filter(|line| line.starts_with('['));
        headers.map(String::as_str)
    }
}
