//! The part of a connection before the first request: options and the replies to them. No I/O.
//!
//! `Handshake::step` takes the available bytes, and returns what one option asks for. Questions that only
//! the exports can answer ([`Ask`]) are answered by `Handshake::answer` and `Handshake::names`, at any
//! later time; until then no further option is taken.
//!
//! A client may send a limited number of options. Too long data is dropped as it arrives, and the option is
//! refused.

use base::{Error, Result};

use super::codec::{
    self, ALLOCATION, ALLOCATION_ID, BadOption, CLIENT_FLAGS_LEN, InfoRequest, MetaRequest,
    NAME_BYTES_MAX, OPTION_LEN, Opt, OptReply, OptionHead, PREFERRED_BYTES, REQUEST_BYTES_MAX,
    greeting, info, put_option_reply,
};
use super::command::{Agreed, ExportInfo};

/// The most bytes of an option's data that are decoded.
pub const OPTION_BYTES_MAX: u32 = 32 << 10;
/// The most bytes of an option's data that are dropped; if a client announces more, the connection is
/// closed.
const DROPPED_BYTES_MAX: u32 = 16 << 20;
/// The most options of a connection.
pub const OPTIONS_MAX: u32 = 1024;
/// Zero bytes after the reply to `EXPORT_NAME`, unless the client has asked to omit them.
const EXPORT_NAME_ZEROES: usize = 124;

/// The hint for a client that does not follow the protocol.
const CLIENT: &str =
    "use a client of the fixed newstyle protocol, as nbd-client, qemu and libnbd are";
/// The hint for a name that no export can have.
const NAMES: &str = "names have at most 4096 bytes of text: ask for the list, and use one of it";

/// A question that only the exports can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The names of all exports.
    List,
    /// Information about this export, which is not opened.
    Describe(String),
    /// The same for an export that is opened: requests on it follow.
    Attach(String),
}

/// The outcome of an option.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Only these bytes remain to be sent.
    Say(Vec<u8>),
    /// A question to the exports.
    Ask(Ask),
    /// The end of the connection, once these bytes are sent.
    End(Vec<u8>),
}

/// The next phase after an answer.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The next option.
    Stay,
    /// Requests.
    Begin(ExportInfo, Agreed),
}

/// The question that the exports have not answered yet.
#[derive(Debug)]
enum Asked {
    List,
    ExportName {
        name: String,
    },
    Info {
        go: bool,
        name: String,
        wants: Wants,
    },
    ListMeta {
        allocation: bool,
    },
    SetMeta {
        name: String,
        allocation: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Wants {
    name: bool,
    description: bool,
}

/// The state of a handshake.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    /// The client's answer to the greeting.
    client: Option<u16>,
    options: u32,
    structured: bool,
    /// The export for which the client chose `base:allocation`.
    allocation: Option<String>,
    asked: Option<(u32, Asked)>,
    /// Bytes of data that are still to be dropped, and their option.
    dropping: Option<(u32, u32)>,
}

impl Handshake {
    /// Takes the next step from `input`. Returns the number of consumed bytes and the outcome; none, if
    /// bytes are missing or an answer is pending. Errors: the client does not speak this protocol.
    pub(super) fn step(&mut self, input: &[u8]) -> Result<(usize, Option<Step>)> {
        if self.asked.is_some() {
            return Ok((0, None));
        }
        if let Some((option, left)) = self.dropping {
            return Ok(self.drop_data(input, option, left));
        }
        let Some(client) = self.client else {
            return self.client_flags(input);
        };
        let Some(head) = OptionHead::decode(input) else {
            return Ok((0, None));
        };
        check_head(&head)?;
        if head.bytes > OPTION_BYTES_MAX {
            self.count_option()?;
            self.dropping = Some((head.option, head.bytes));
            return Ok((OPTION_LEN, None));
        }
        let end = OPTION_LEN + head.bytes as usize;
        let Some(data) = input.get(OPTION_LEN..end) else {
            return Ok((0, None));
        };
        self.count_option()?;
        let known = Opt::of(head.option);
        if client & greeting::FIXED_NEWSTYLE == 0 && known != Some(Opt::ExportName) {
            return Err(refused(
                "an option from a client without fixed newstyle",
                CLIENT,
            ));
        }
        let Some(option) = known else {
            let why = format!(
                "option {} is not known here (go on without it)",
                head.option
            );
            return Ok((end, Some(Step::Say(unsup(head.option, &why)))));
        };
        Ok((end, Some(self.option(option, data)?)))
    }

    fn client_flags(&mut self, input: &[u8]) -> Result<(usize, Option<Step>)> {
        let Some(flags) = codec::client_flags(input) else {
            return Ok((0, None));
        };
        let known = u32::from(greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES);
        if flags & !known != 0 {
            let what = format!("unknown flags {flags:#x} in the answer to the greeting");
            return Err(refused(&what, CLIENT));
        }
        self.client = Some(flags as u16);
        Ok((CLIENT_FLAGS_LEN, Some(Step::Say(Vec::new()))))
    }

    fn count_option(&mut self) -> Result<()> {
        self.options += 1;
        if self.options > OPTIONS_MAX {
            let what = format!("more than {OPTIONS_MAX} options");
            return Err(refused(&what, "begin with OPT_GO sooner"));
        }
        Ok(())
    }

    fn drop_data(&mut self, input: &[u8], option: u32, left: u32) -> (usize, Option<Step>) {
        let n = input.len().min(left as usize);
        let left = left - n as u32;
        if left > 0 {
            self.dropping = Some((option, left));
            return (n, None);
        }
        self.dropping = None;
        let why = format!("more than {OPTION_BYTES_MAX} bytes of data (say less at once)");
        let reply = error(option, OptReply::TooBig, &why);
        (n, Some(Step::Say(reply)))
    }

    fn option(&mut self, option: Opt, data: &[u8]) -> Result<Step> {
        let number = option as u32;
        let invalid = |why| Ok(Step::Say(error(number, OptReply::Invalid, why)));
        let takes_none = matches!(
            option,
            Opt::List | Opt::StartTls | Opt::StructuredReply | Opt::ExtendedHeaders
        );
        if takes_none && !data.is_empty() {
            return invalid("this option has no data (say it without)");
        }
        match option {
            Opt::ExportName => self.export_name(data),
            Opt::Abort => Ok(Step::End(ack(number))),
            Opt::List => Ok(self.ask(number, Asked::List, Ask::List)),
            Opt::StartTls => Ok(Step::Say(unsup(
                number,
                "TLS is not built into this server (connect without it, on this machine)",
            ))),
            Opt::ExtendedHeaders => Ok(Step::Say(unsup(
                number,
                "extended headers are not known here (go on without them)",
            ))),
            Opt::Info | Opt::Go => Ok(self.info(option, data)),
            Opt::StructuredReply if self.structured => {
                invalid("structured replies are on already (ask for them once)")
            }
            Opt::StructuredReply => {
                self.structured = true;
                Ok(Step::Say(ack(number)))
            }
            Opt::ListMetaContext | Opt::SetMetaContext => Ok(self.meta(option, data)),
        }
    }

    fn ask(&mut self, option: u32, asked: Asked, ask: Ask) -> Step {
        self.asked = Some((option, asked));
        Step::Ask(ask)
    }

    /// This option has no reply that refuses it: an invalid name ends the connection.
    fn export_name(&mut self, data: &[u8]) -> Result<Step> {
        let name = codec::plain(data).map_err(|bad| match bad {
            BadOption::TooBig => refused(&format!("a name of {} bytes", data.len()), NAMES),
            BadOption::Invalid => refused("a name that is no text", NAMES),
        })?;
        let name = name.to_owned();
        let ask = Ask::Attach(name.clone());
        Ok(self.ask(Opt::ExportName as u32, Asked::ExportName { name }, ask))
    }

    fn info(&mut self, option: Opt, data: &[u8]) -> Step {
        let request = match InfoRequest::decode(data) {
            Ok(request) => request,
            Err(bad) => return Step::Say(bad_data(option as u32, bad)),
        };
        let name = request.name.to_owned();
        let go = option == Opt::Go;
        let wants = Wants {
            name: request.wants(info::NAME),
            description: request.wants(info::DESCRIPTION),
        };
        let ask = if go { Ask::Attach } else { Ask::Describe }(name.clone());
        self.ask(option as u32, Asked::Info { go, name, wants }, ask)
    }

    fn meta(&mut self, option: Opt, data: &[u8]) -> Step {
        let number = option as u32;
        let set = option == Opt::SetMetaContext;
        if set {
            // Even if the option is refused, the former choice is void.
            self.allocation = None;
        }
        if !self.structured {
            let why = "contexts without structured replies (ask for those first)";
            return Step::Say(error(number, OptReply::Invalid, why));
        }
        let request = match MetaRequest::decode(data) {
            Ok(request) => request,
            Err(bad) => return Step::Say(bad_data(number, bad)),
        };
        let name = request.name.to_owned();
        let asked = if set {
            Asked::SetMeta {
                name: name.clone(),
                allocation: request.allocation,
            }
        } else {
            Asked::ListMeta {
                allocation: request.allocation || request.base || request.queries == 0,
            }
        };
        self.ask(number, asked, Ask::Describe(name))
    }

    /// The reply to [`Ask::List`]: the names of all exports.
    pub(super) fn names(&mut self, names: Result<Vec<String>>) -> Vec<u8> {
        let Some((option, Asked::List)) = self.asked.take() else {
            return Vec::new();
        };
        let names = match names {
            Ok(names) => names,
            Err(e) => return error(option, OptReply::refusing(&e), &e.to_string()),
        };
        let mut out = Vec::new();
        for name in names.iter().filter(|n| n.len() <= NAME_BYTES_MAX) {
            let len = (name.len() as u32).to_be_bytes();
            put_option_reply(&mut out, option, OptReply::Server, &[&len, name.as_bytes()]);
        }
        put_option_reply(&mut out, option, OptReply::Ack, &[]);
        out
    }

    /// The reply to the other questions: information about an export, and the next phase. Errors: the
    /// connection ends, because there is no other way to refuse `EXPORT_NAME`.
    pub(super) fn answer(&mut self, found: Result<ExportInfo>) -> Result<(Vec<u8>, Outcome)> {
        let Some((option, asked)) = self.asked.take() else {
            return Err(Error::broken("an answer that nobody asked for"));
        };
        let export = match found {
            Ok(export) => export,
            Err(e) if option == Opt::ExportName as u32 => return Err(e),
            Err(e) => {
                let why = e.to_string();
                let reply = error(option, OptReply::refusing(&e), &why);
                return Ok((reply, Outcome::Stay));
            }
        };
        let mut out = Vec::new();
        let begins = match asked {
            Asked::ExportName { name } => {
                self.put_export_name(&export, &mut out);
                Some(name)
            }
            Asked::Info { go, name, wants } => {
                self.put_info(option, &export, wants, &mut out);
                go.then_some(name)
            }
            Asked::ListMeta { allocation } => {
                put_meta(option, allocation, &mut out);
                None
            }
            Asked::SetMeta { name, allocation } => {
                put_meta(option, allocation, &mut out);
                self.allocation = allocation.then_some(name);
                None
            }
            Asked::List => return Err(Error::broken("an export where names were asked for")),
        };
        let Some(name) = begins else {
            return Ok((out, Outcome::Stay));
        };
        let agreed = Agreed {
            structured: self.structured,
            allocation: self.allocation == Some(name),
        };
        Ok((out, Outcome::Begin(export, agreed)))
    }

    fn put_export_name(&self, export: &ExportInfo, out: &mut Vec<u8>) {
        out.extend_from_slice(&export.size.to_be_bytes());
        out.extend_from_slice(&export.flags(self.structured).to_be_bytes());
        if self.client.unwrap_or_default() & greeting::NO_ZEROES == 0 {
            out.resize(out.len() + EXPORT_NAME_ZEROES, 0);
        }
    }

    fn put_info(&self, option: u32, export: &ExportInfo, wants: Wants, out: &mut Vec<u8>) {
        let mut put = |what: u16, data: &[&[u8]]| {
            let what = what.to_be_bytes();
            let data = [&[&what[..]], data].concat();
            put_option_reply(out, option, OptReply::Info, &data);
        };
        let flags = export.flags(self.structured);
        put(
            info::EXPORT,
            &[&export.size.to_be_bytes(), &flags.to_be_bytes()],
        );
        put(
            info::BLOCK_SIZE,
            &[
                &1_u32.to_be_bytes(),
                &PREFERRED_BYTES.to_be_bytes(),
                &REQUEST_BYTES_MAX.to_be_bytes(),
            ],
        );
        if wants.name {
            put(info::NAME, &[export.name.as_bytes()]);
        }
        if wants.description && !export.description.is_empty() {
            put(info::DESCRIPTION, &[export.description.as_bytes()]);
        }
        put_option_reply(out, option, OptReply::Ack, &[]);
    }
}

fn check_head(head: &OptionHead) -> Result<()> {
    if head.magic != codec::IHAVEOPT {
        let remedy = "the other side is no NBD client: check which address it was given";
        return Err(refused("an option without its magic", remedy));
    }
    if head.bytes > DROPPED_BYTES_MAX {
        let what = format!("an option with {} bytes of data", head.bytes);
        return Err(refused(&what, CLIENT));
    }
    Ok(())
}

fn refused(what: &str, remedy: &str) -> Error {
    Error::invalid_argument(format!("NBD handshake: {what}")).hint(remedy)
}

fn put_meta(option: u32, allocation: bool, out: &mut Vec<u8>) {
    if allocation {
        let id = ALLOCATION_ID.to_be_bytes();
        let data = [&id[..], ALLOCATION.as_bytes()];
        put_option_reply(out, option, OptReply::MetaContext, &data);
    }
    put_option_reply(out, option, OptReply::Ack, &[]);
}

fn ack(option: u32) -> Vec<u8> {
    error(option, OptReply::Ack, "")
}

fn unsup(option: u32, why: &str) -> Vec<u8> {
    error(option, OptReply::Unsup, why)
}

fn bad_data(option: u32, bad: BadOption) -> Vec<u8> {
    match bad {
        BadOption::Invalid => {
            let why = format!("data that cannot be ({CLIENT})");
            error(option, OptReply::Invalid, &why)
        }
        BadOption::TooBig => {
            let why = format!("a name of more than {NAME_BYTES_MAX} bytes ({NAMES})");
            error(option, OptReply::TooBig, &why)
        }
    }
}

/// A reply with a text for people.
fn error(option: u32, kind: OptReply, why: &str) -> Vec<u8> {
    let mut end = why.len().min(NAME_BYTES_MAX);
    while !why.is_char_boundary(end) {
        end -= 1;
    }
    let mut out = Vec::new();
    let text = why.get(..end).unwrap_or_default().as_bytes();
    put_option_reply(&mut out, option, kind, &[text]);
    out
}

#[cfg(test)]
mod tests;
