//! `ctl status`: the current status of each process.

use std::process::ExitCode;

use base::Result;
use comfy_table::Table;

use crate::cluster::Cluster;
use crate::size::about;
use crate::status::{Chunk, Nbd};
use crate::{cli, http, print};

/// The status of a cluster's processes.
pub(crate) struct Found {
    /// By store.
    pub(crate) chunks: Vec<(u64, std::result::Result<Chunk, String>)>,
    pub(crate) nbd: Option<std::result::Result<Nbd, String>>,
}

/// Asks all processes that the cluster file names.
pub(crate) fn look(cluster: &Cluster) -> Found {
    let none = "the cluster file names no metrics address";
    let chunks = cluster.store.iter().map(|store| {
        let answer = match &store.metrics {
            Some(address) => http::status(address).map_err(|e| e.to_string()),
            None => Err(none.to_owned()),
        };
        (store.id, answer)
    });
    let nbd = cluster.nbd.metrics.as_ref();
    Found {
        chunks: chunks.collect(),
        nbd: nbd.map(|address| http::status(address).map_err(|e| e.to_string())),
    }
}

/// Prints the status. The exit code says whether all processes have answered, all stores are connected with
/// each other, and every group has a leader.
pub(crate) fn status(args: &cli::Status) -> Result<ExitCode> {
    let cluster = Cluster::read(&args.cluster)?;
    let found = look(&cluster);
    let leaders = |group: u32| {
        let all = found.chunks.iter().filter_map(|(_, c)| c.as_ref().ok());
        let mut all = all.flat_map(|c| c.groups.iter().map(move |g| (c.store, g)));
        all.find(|(_, g)| g.group == group && g.role == "leader")
            .map(|(store, _)| store)
    };
    let headless = cluster.group.iter().filter(|g| leaders(g.id).is_none());
    let others = cluster.store.len() as u64 - 1;
    let is_whole = |c: &Result<_, _>| c.as_ref().is_ok_and(|c: &Chunk| c.peers == others);
    let is_well = headless.count() == 0 && found.chunks.iter().all(|(_, c)| is_whole(c));
    if args.json {
        let chunks: Vec<_> = found
            .chunks
            .iter()
            .map(|(id, c)| match c {
                Ok(c) => serde_json::json!(c),
                Err(e) => serde_json::json!({"store": id, "error": e}),
            })
            .collect();
        let nbd = found.nbd.as_ref().map(|n| match n {
            Ok(n) => serde_json::json!(n),
            Err(e) => serde_json::json!({"error": e}),
        });
        let all = serde_json::json!({"well": is_well, "chunks": chunks, "nbd": nbd});
        print(&all.to_string());
    } else {
        print(&text(&cluster, &found, leaders));
    }
    Ok(if is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn text(cluster: &Cluster, found: &Found, leaders: impl Fn(u32) -> Option<u64>) -> String {
    let mut stores = Table::new();
    stores.set_header([
        "store",
        "pid",
        "leads",
        "peers",
        "dirty",
        "log full",
        "free slots",
        "checkpoints",
        "writes",
        "reads",
    ]);
    for (id, chunk) in &found.chunks {
        match chunk {
            Ok(c) => stores.add_row([
                id.to_string(),
                c.pid.to_string(),
                format!("{} of {}", c.leaders, c.groups.len()),
                c.peers.to_string(),
                about(c.dirty_bytes),
                format!("{:.0} %", c.log_fill * 100.0),
                format!("{} of {}", c.free_slots, c.slots),
                c.checkpoints.to_string(),
                c.writes.to_string(),
                c.reads.to_string(),
            ]),
            Err(e) => stores.add_row([id.to_string(), e.clone()]),
        };
    }
    let mut groups = Table::new();
    groups.set_header(["group", "leader", "term", "committed", "applied by store"]);
    for group in &cluster.group {
        let of = found.chunks.iter().filter_map(|(id, c)| {
            let c = c.as_ref().ok()?;
            Some((id, c.groups.iter().find(|g| g.group == group.id)?))
        });
        let of: Vec<_> = of.collect();
        let newest = of.iter().max_by_key(|(_, g)| (g.term, g.committed));
        let applied = of.iter().map(|(id, g)| format!("{id}: {}", g.applied));
        groups.add_row([
            group.id.to_string(),
            leaders(group.id).map_or("none".to_owned(), |l| format!("store {l}")),
            newest.map_or("?".to_owned(), |(_, g)| g.term.to_string()),
            newest.map_or("?".to_owned(), |(_, g)| g.committed.to_string()),
            applied.collect::<Vec<_>>().join(", "),
        ]);
    }
    let nbd = match &found.nbd {
        Some(Ok(n)) => format!(
            "{}: pid {}, {} volumes attached, {} stores connected, {} writes, {} reads, {} failed",
            n.uri, n.pid, n.attached, n.stores, n.writes, n.reads, n.failures
        ),
        Some(Err(e)) => format!("nbd: {e}"),
        None => "nbd: the cluster file names no metrics address".to_owned(),
    };
    format!("{stores}\n{groups}\n{nbd}")
}
