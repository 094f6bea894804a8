//! `token`: a new token and its entry.

use std::process::ExitCode;

use base::Result;
use tracks::http::tokens::{self, Wanted};

use super::args::Token;
use super::{print, say};

pub(crate) fn run(args: Token) -> Result<ExitCode> {
    let (token, entry) = tokens::make(Wanted {
        name: args.name,
        scopes: args.scopes.into_iter().map(Into::into).collect(),
        fleets: args.fleets,
        reports_per_second: args.reports_per_second,
    })?;
    say(&format!("token: {token}"));
    print(entry.trim_end());
    Ok(ExitCode::SUCCESS)
}
