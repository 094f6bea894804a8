//! Settings of `serve` from a file and from the environment. The command line has priority over the
//! environment, and that over the file. Their names are those of the options.
//!
//! They are inserted before the options of the command line, so that one parser reads all three.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use base::{Error, Result};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::args::Cli;
use super::say;

/// The prefix of the variables of the environment.
const PREFIX: &str = "IRONSTONE_TRACKS_";
/// A variable that is read elsewhere.
const PASSWORD: &str = "MQTT_PASSWORD";
/// Options that are not settings.
const NOT_SETTINGS: [&str; 4] = ["config", "print_config", "help", "version"];

/// A setting's value, and its source.
struct Setting {
    id: String,
    value: String,
    from: String,
}

/// The command line with all settings; and these settings as a file. Errors: a setting is wrong;
/// the error names its source. An invalid command line ends the process, and so does a request for
/// help.
pub(crate) fn parse() -> Result<(Cli, String)> {
    let args: Vec<OsString> = std::env::args_os().collect();
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        Some((
            name.strip_prefix(PREFIX)?.to_owned(),
            value.to_string_lossy().into_owned(),
        ))
    });
    let (args, settings) = with_settings(args, variables.collect())?;
    let matches = Cli::command().get_matches_from(args);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    let text = matches
        .subcommand_matches("serve")
        .map(|of| printed(of, &settings));
    Ok((cli, text.unwrap_or_default()))
}

/// The options of `serve` that are settings.
fn options() -> Vec<Arg> {
    let command = Cli::command();
    let serve = command
        .find_subcommand("serve")
        .cloned()
        .unwrap_or_default();
    let all = serve
        .get_arguments()
        .filter(|arg| !NOT_SETTINGS.contains(&arg.get_id().as_str()));
    all.cloned().collect()
}

fn is_flag(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// The command line, with the settings of the file and the environment inserted.
fn with_settings(
    args: Vec<OsString>,
    variables: Vec<(String, String)>,
) -> Result<(Vec<OsString>, Vec<Setting>)> {
    // First the command line alone; missing arguments may be given elsewhere.
    let relaxed = Cli::command().mut_subcommand("serve", relaxed);
    let Ok(matches) = relaxed.try_get_matches_from(&args) else {
        return Ok((args, Vec::new()));
    };
    let Some(serve) = matches.subcommand_matches("serve") else {
        return Ok((args, Vec::new()));
    };
    let said = |id: &str| serve.value_source(id) == Some(ValueSource::CommandLine);
    let known = options();
    let mut settings: Vec<Setting> = Vec::new();
    for setting in of_environment(&known, &variables) {
        settings.push(setting?);
    }
    let file = serve.get_one::<PathBuf>("config").cloned();
    let of_variable = variables.iter().find(|(name, _)| name == "CONFIG");
    let file = file.or_else(|| of_variable.map(|(_, value)| PathBuf::from(value)));
    if let Some(file) = &file {
        for setting in of_file(&known, file)? {
            if !settings.iter().any(|known| known.id == setting.id) {
                settings.push(setting);
            }
        }
    }
    settings.retain(|setting| !said(&setting.id));
    let at = args
        .iter()
        .position(|arg| arg == "serve")
        .map_or(args.len(), |at| at + 1);
    let mut all: Vec<OsString> = args.iter().take(at).cloned().collect();
    for Setting { id, value, .. } in &settings {
        let arg = known.iter().find(|arg| arg.get_id() == id.as_str());
        let name = format!("--{}", id.replace('_', "-"));
        if arg.is_some_and(is_flag) {
            all.extend((value == "true").then(|| name.into()));
        } else {
            all.push(format!("{name}={value}").into());
        }
    }
    all.extend(args.into_iter().skip(at));
    Ok((all, settings))
}

/// The command without required arguments.
fn relaxed(serve: Command) -> Command {
    let ids: Vec<String> = serve
        .get_arguments()
        .map(|arg| arg.get_id().to_string())
        .collect();
    ids.into_iter()
        .filter(|id| id != "help")
        .fold(serve, |serve, id| {
            serve.mut_arg(id, |arg| arg.required(false))
        })
}

fn of_environment<'a>(
    known: &'a [Arg],
    variables: &'a [(String, String)],
) -> impl Iterator<Item = Result<Setting>> + 'a {
    variables.iter().filter_map(move |(name, value)| {
        let id = name.to_ascii_lowercase();
        let from = format!("{PREFIX}{name}");
        if let Some(arg) = known.iter().find(|arg| arg.get_id() == id.as_str()) {
            return Some(check(arg, value.clone(), from));
        }
        if name != PASSWORD && id != "config" {
            say(&format!(
                "note: {from} is no setting (serve --print-config names them)"
            ));
        }
        None
    })
}

fn of_file(known: &[Arg], file: &Path) -> Result<Vec<Setting>> {
    let text = std::fs::read_to_string(file).map_err(|e| Error::io("read", file, e))?;
    let wrong = |text: String| Error::invalid_argument(text).file(file);
    let table = DeTable::parse(&text).map_err(|e| wrong(e.to_string()))?;
    let mut all = Vec::new();
    for (key, value) in table.get_ref() {
        let before = text.get(..key.span().start).unwrap_or_default();
        let line = before.lines().count().max(1) + usize::from(before.ends_with('\n'));
        let name: &str = key.get_ref();
        let Some(arg) = known.iter().find(|arg| arg.get_id() == name) else {
            return Err(wrong(format!("line {line}: {name:.80?} is no setting"))
                .hint("`ironstone-tracks serve --print-config --dir D` names all of them"));
        };
        let value = plain(value).ok_or_else(|| {
            wrong(format!(
                "line {line}: {name} is neither a text nor a number nor true or false"
            ))
        })?;
        let from = format!("{}, line {line}", file.display());
        all.push(check(arg, value, from)?);
    }
    Ok(all)
}

fn plain(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Boolean(is) => Some(is.to_string()),
        _ => None,
    }
}

/// Errors: the option does not take the value; the error names its source.
fn check(arg: &Arg, value: String, from: String) -> Result<Setting> {
    let id = arg.get_id().to_string();
    let wrong = |why: &str| {
        Err(Error::invalid_argument(format!(
            "{from}: {id} = {value:.80?}: {why}"
        )))
    };
    if is_flag(arg) {
        if !matches!(value.as_str(), "true" | "false") {
            return wrong("it is true or false");
        }
    } else {
        let alone = arg.clone().required(false);
        let command = Command::new("serve").no_binary_name(true).arg(alone);
        if let Err(e) =
            command.try_get_matches_from([format!("--{}={value}", id.replace('_', "-"))])
        {
            let why = e.to_string();
            let why = why.lines().next().unwrap_or_default();
            let why = why.split_once("': ").map_or(why, |(_, why)| why);
            return wrong(why);
        }
    }
    Ok(Setting { id, value, from })
}

/// All settings as a configuration file.
fn printed(serve: &ArgMatches, settings: &[Setting]) -> String {
    let mut out =
        "# Settings of `ironstone-tracks serve`, as they are in force: serve --config FILE\n"
            .to_owned();
    for arg in options() {
        let id = arg.get_id().as_str();
        out.push('\n');
        if let Some(help) = arg.get_long_help().or(arg.get_help()) {
            help.to_string()
                .lines()
                .for_each(|line| out.push_str(&format!("# {line}\n")));
        }
        let default = arg
            .get_default_values()
            .first()
            .map(|value| value.to_string_lossy());
        if let Some(default) = default.filter(|_| !is_flag(&arg)) {
            out.push_str(&format!("# default: {default}\n"));
        }
        let is_set = matches!(serve.value_source(id), Some(ValueSource::CommandLine));
        if is_set {
            let from = settings.iter().find(|setting| setting.id == id);
            let from = from.map_or("the command line", |setting| setting.from.as_str());
            out.push_str(&format!("# from {from}\n"));
        }
        out.push_str(&match value(serve, &arg) {
            Some(value) => format!("{id} = {value}\n"),
            None => format!("# {id} =\n"),
        });
    }
    out
}

/// The value in force, as TOML.
fn value(serve: &ArgMatches, arg: &Arg) -> Option<String> {
    let id = arg.get_id().as_str();
    if is_flag(arg) {
        return Some(serve.get_flag(id).to_string());
    }
    let raw = serve.get_raw(id)?.next()?.to_string_lossy().into_owned();
    let is_number = raw.parse::<i64>().is_ok();
    Some(if is_number {
        raw
    } else {
        toml::Value::String(raw).to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(args: &[&str], variables: &[(&str, &str)]) -> Result<(Vec<String>, Vec<Setting>)> {
        let args = [&["ironstone-tracks", "serve"], args].concat();
        let args = args.into_iter().map(OsString::from).collect();
        let variables = variables
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        let (args, settings) = with_settings(args, variables.collect())?;
        let args = args.into_iter().map(|arg| arg.into_string().unwrap());
        Ok((args.skip(2).collect(), settings))
    }

    #[test]
    fn the_command_line_goes_before_the_environment_and_that_before_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        let text = "# Text\ndir = \"/a\"\nmax_queries = 3\nmemory = \"1M\"\nno_visits = true\nfixed_fleets = true\n";
        std::fs::write(&file, text).unwrap();
        let config = format!("--config={}", file.display());
        let variables = [
            ("MAX_QUERIES", "4"),
            ("MEMORY", "2M"),
            ("FIXED_FLEETS", "false"),
        ];
        let (args, settings) = all(&[&config, "--memory=3M"], &variables).unwrap();
        assert_eq!(
            args,
            [
                "--max-queries=4",
                "--dir=/a",
                "--no-visits",
                config.as_str(),
                "--memory=3M"
            ]
        );
        let from: Vec<&str> = settings
            .iter()
            .map(|setting| setting.from.as_str())
            .collect();
        assert_eq!(from.first(), Some(&"IRONSTONE_TRACKS_MAX_QUERIES"));
        assert!(
            from.iter().any(|from| from.ends_with("c.toml, line 2")),
            "{from:?}"
        );
        // The file may be named by the environment, too.
        let path = file.display().to_string();
        let (args, _) = all(&["--dir=/b"], &[("CONFIG", &path)]).unwrap();
        assert!(
            args.contains(&"--max-queries=3".to_owned()) && !args.contains(&"--dir=/a".to_owned())
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_who_says_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        let config = format!("--config={}", file.display());
        let cases = [
            (
                "dir = \"/a\"\nmax_querys = 3\n",
                "line 2: \"max_querys\" is no setting",
            ),
            ("max_queries = 0\n", "line 1: max_queries = \"0\""),
            ("no_visits = 1\n", "true or false"),
            ("memory = [1]\n", "line 1: memory"),
            ("memory = \n", "c.toml"),
            ("config = \"x\"\n", "is no setting"),
            ("listen = \"here\"\n", "line 1: listen"),
        ];
        for (text, why) in cases {
            std::fs::write(&file, text).unwrap();
            let e = all(&[&config], &[]).map(|_| ()).unwrap_err().to_string();
            assert!(e.contains(why), "{why}: {e}");
        }
        let e = all(&[], &[("MEMORY", "lots")])
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(
            e.contains("IRONSTONE_TRACKS_MEMORY") && e.contains("no size"),
            "{e}"
        );
        let e = all(&["--config=/none"], &[])
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(e.contains("/none"), "{e}");
    }

    #[test]
    fn any_file_is_read_or_refused_with_its_name() {
        const WHOLE: &str = "dir = \"/a\"\nlisten = \"127.0.0.1:1\"\nmemory = \"1M\"\nmax_queries = 3\nno_visits = true\n\
                             # Text\nshards = 2\n";
        const PIECES: [&str; 12] = [
            "[a]\n", "= ", "\"", "\"\"\"", "\\u0000", "--dir", "-1", "9e999", "\u{0}", "{a=1}",
            "\n", "å",
        ];
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        let known = options();
        let mut rng = base::rng::Rng::new(1);
        let (mut read, mut refused) = (0, 0);
        for _ in 0..3000 {
            let mut bytes = WHOLE.as_bytes().to_vec();
            for _ in 0..rng.below(4) {
                let at = rng.below(bytes.len() as u64 + 1) as usize;
                let end = (at + rng.below(6) as usize).min(bytes.len());
                let piece = PIECES.get(rng.below(16) as usize).copied();
                let any = [rng.below(256) as u8];
                let new = piece.map_or(&any[..], str::as_bytes).to_vec();
                bytes.splice(at..end, new);
            }
            std::fs::write(&file, &bytes).unwrap();
            match of_file(&known, &file) {
                Ok(settings) => {
                    read += 1;
                    assert!(settings.iter().all(|s| s.from.contains("c.toml")));
                }
                Err(e) => {
                    refused += 1;
                    assert!(e.to_string().contains("c.toml"), "{e}");
                }
            }
        }
        assert!(
            read > 100 && refused > 1000,
            "{read} read, {refused} refused"
        );
    }

    #[test]
    fn what_is_printed_is_read_again() {
        let args = [
            "ironstone-tracks",
            "serve",
            "--dir=/a b",
            "--no-visits",
            "--shards=3",
        ];
        let matches = Cli::command().try_get_matches_from(args).unwrap();
        let text = printed(matches.subcommand_matches("serve").unwrap(), &[]);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        std::fs::write(&file, &text).unwrap();
        let settings = of_file(&options(), &file).unwrap();
        let find = |id: &str| {
            settings
                .iter()
                .find(|s| s.id == id)
                .map(|s| s.value.clone())
        };
        assert_eq!(find("dir").as_deref(), Some("/a b"), "{text}");
        assert_eq!(find("no_visits").as_deref(), Some("true"));
        assert_eq!(find("shards").as_deref(), Some("3"));
        assert_eq!(find("memory").as_deref(), Some("256M"));
        assert!(text.contains("# default: 256M") && text.contains("# tokens ="));
    }
}
