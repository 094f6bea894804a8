//! `ctl log dump`: every item of a store's log.

use base::{Error, Result};
use block::group::command::Command;
use block::raftlog::batch::{Item, Kind};
use block::raftlog::scan::Scan;

use crate::offline::Offline;
use crate::{cli, print};

/// Prints all files, the oldest first. Errors: a file is damaged before its end.
pub(crate) fn run(args: &cli::Offline) -> Result<()> {
    let store = Offline::open(&args.dir)?;
    let mut before = None;
    for (number, file) in store.logs()? {
        let mut scan = Scan::begin(&*file)?;
        let head = scan.head();
        if let Some((predecessor, end, path)) = before.take()
            && head.predecessor == predecessor
            && end < head.predecessor_end
        {
            return Err(Error::corruption(format!(
                "it ends at {end}, and was durable up to {}",
                head.predecessor_end
            ))
            .file(path));
        }
        if args.json {
            let line = serde_json::json!({
                "file": number, "store": head.store.to_string(), "unit": head.unit,
                "predecessor": head.predecessor, "predecessor_end": head.predecessor_end,
            });
            print(&line.to_string());
        } else {
            print(&format!(
                "file {number} of store {}: behind file {} up to {}",
                head.store, head.predecessor, head.predecessor_end
            ));
        }
        while let Some(found) = scan.next_batch()? {
            if args.json {
                let items: Vec<_> = found.items.iter().map(json).collect();
                let line = serde_json::json!({
                    "file": number, "offset": found.offset, "sequence": found.place.sequence,
                    "durable": found.place.durable, "items": items,
                });
                print(&line.to_string());
                continue;
            }
            print(&format!(
                "  {:>10}  batch {}, {} items, durable to {}",
                found.offset,
                found.place.sequence,
                found.items.len(),
                found.place.durable
            ));
            for item in &found.items {
                print(&format!("              {}", text(item)));
            }
        }
        if !args.json {
            print(&format!("  {:>10}  end", scan.end()));
        }
        before = Some((number, scan.end(), file.path().to_path_buf()));
    }
    Ok(())
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Entry => "entry",
        Kind::HardState => "hard state",
        Kind::Checkpoint => "checkpoint",
        Kind::GroupState => "group state",
        Kind::Purge => "purge",
        Kind::Copying => "copy begun",
    }
}

fn command(item: &Item) -> Option<Command> {
    let is_command = item.kind == Kind::Entry && item.flags == 0 && !item.inline.is_empty();
    let decoded = is_command.then(|| Command::decode(&item.inline, item.payload.len()).ok());
    decoded.flatten().map(|(command, _)| command)
}

fn text(item: &Item) -> String {
    let mut out = format!(
        "group {} {} {} of term {}",
        item.group,
        name(item.kind),
        item.index,
        item.term
    );
    if let Some(c) = command(item) {
        out.push_str(&format!(
            ": {:?} tree {} chunk {} blocks {}+{}, epoch {}, seq {}",
            c.op,
            c.range.tree,
            c.range.chunk,
            c.range.first,
            c.range.blocks,
            c.origin.epoch,
            c.origin.seq
        ));
    }
    out
}

fn json(item: &Item) -> serde_json::Value {
    let command = command(item).map(|c| {
        serde_json::json!({
            "op": format!("{:?}", c.op).to_lowercase(), "tree": c.range.tree.0,
            "chunk": c.range.chunk.0, "first": c.range.first.0, "blocks": c.range.blocks,
            "epoch": c.origin.epoch.0, "seq": c.origin.seq,
        })
    });
    serde_json::json!({
        "kind": name(item.kind), "group": item.group.0, "index": item.index.0,
        "term": item.term.0, "payload_bytes": item.payload.len(), "command": command,
    })
}
