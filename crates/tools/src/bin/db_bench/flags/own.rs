//! Options that only Ironstone has, as flags: the rows of the option tables that RocksDB does not have,
//! with their names, types, defaults and documentation.

use base::options::{OptionFlag, OptionInfo, OptionTable};
use ironstone::{CfOptions, DbOptions, TableOptions};

use super::{Place, Value as _};

/// An option that only Ironstone has.
#[derive(Clone, Copy)]
pub(crate) struct OwnFlag {
    pub(super) place: Place,
    pub(super) info: &'static OptionInfo,
}

impl OwnFlag {
    /// The type's name in messages.
    pub(super) fn kind(&self) -> String {
        (self.info.kind)()
    }

    /// The value in the form of the option tables; `None` if the text is not a valid value.
    fn value(&self, text: &str) -> Option<String> {
        if self.kind() == bool::KIND {
            return <bool as super::Value>::parse(text).map(|on| on.print());
        }
        let name = self.info.name;
        let set = match self.place {
            Place::Db => DbOptions::default().set(name, text),
            Place::Cf => CfOptions::default().set(name, text),
            Place::Table => TableOptions::default().set(name, text),
        };
        set.is_ok().then(|| text.to_owned())
    }
}

/// All such options, table by table.
pub(crate) fn all() -> impl Iterator<Item = OwnFlag> {
    let of = |place, infos: &'static [OptionInfo]| {
        let own = infos.iter().filter(|i| i.has(OptionFlag::Ironstone));
        own.map(move |info| OwnFlag { place, info })
    };
    of(Place::Db, DbOptions::infos())
        .chain(of(Place::Cf, CfOptions::infos()))
        .chain(of(Place::Table, TableOptions::infos()))
}

/// The option with this name; also whether the name is `no` and the name of a Boolean option.
pub(super) fn find(name: &str) -> Option<(OwnFlag, bool)> {
    let by_name = |name: &str| all().find(|f| f.info.name == name);
    if let Some(flag) = by_name(name) {
        return Some((flag, false));
    }
    let flag = by_name(name.strip_prefix("no")?)?;
    (flag.kind() == bool::KIND).then_some((flag, true))
}

/// The options given on the command line, in order; the last value of each counts.
#[derive(Clone, Default)]
pub(crate) struct Own(Vec<(OwnFlag, String)>);

impl Own {
    /// Sets an option. Returns false if the text is not a value of its type.
    pub(super) fn set(&mut self, flag: OwnFlag, text: &str) -> bool {
        let Some(value) = flag.value(text) else {
            return false;
        };
        self.0.retain(|(f, _)| f.info.name != flag.info.name);
        self.0.push((flag, value));
        true
    }

    /// Removes the options with these names.
    pub(super) fn forget(&mut self, names: &[String]) {
        self.0
            .retain(|(f, _)| !names.iter().any(|n| n == f.info.name));
    }

    /// Place, name and value of each option that was set, and whether the value is the default.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Place, &'static str, &str, bool)> {
        self.0.iter().map(|(flag, value)| {
            let is_default = *value == (flag.info.default)();
            (flag.place, flag.info.name, value.as_str(), is_default)
        })
    }

    /// The value of the option with this name, if it was set.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(flag, _)| flag.info.name == name);
        found.map(|(_, value)| value.as_str())
    }
}
