//! Settings of an OPTIONS file that have no effect here, kept as they stand, so that the next
//! OPTIONS file has them too: what RocksDB is to do is not forgotten because Ironstone wrote last.
//!
//! Kept are keys and sections that are not known, values that Ironstone does not have, and those
//! that tune nothing here. A setting that is changed later, by name or as a field, is kept no longer.

/// A setting as it stands in an OPTIONS file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) section: &'static str,
    pub(super) name: String,
    /// What stood behind the `=`.
    pub(super) value: String,
    /// What would have been written instead; as long as it would be, the setting stands.
    pub(super) instead: Option<String>,
    /// Whether it asks for something that it does not get here.
    pub(super) asks: bool,
}

/// Settings that have no effect here, of a database or of a column family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    settings: Vec<Setting>,
    /// The lines of sections that are not known, their headers among them.
    pub(super) foreign: Vec<String>,
    /// The release that wrote the file.
    pub(super) version: (u32, u32, u32),
}

impl Kept {
    /// The value of a setting, if it is kept.
    pub(crate) fn get(&self, section: &str, name: &str) -> Option<&str> {
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

    /// Nothing is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.settings.is_empty() && self.foreign.is_empty()
    }

    /// The settings of a section.
    pub(super) fn of(&self, section: &'static str) -> impl Iterator<Item = &Setting> {
        self.settings.iter().filter(move |s| s.section == section)
    }

    /// What is to be written of an option: what was kept, unless it was changed since.
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

    /// What is told in LOG: name and value of what asks for something that it does not get.
    pub(crate) fn told(&self) -> impl Iterator<Item = (&str, &str)> {
        let asking = self.settings.iter().filter(|s| s.asks);
        asking.map(|s| (s.name.as_str(), s.value.as_str()))
    }

    /// The headers of the sections that are not known.
    pub(crate) fn sections(&self) -> impl Iterator<Item = &str> {
        let headers = self.foreign.iter().filter(|line| line.starts_with('['));
        headers.map(String::as_str)
    }
}
