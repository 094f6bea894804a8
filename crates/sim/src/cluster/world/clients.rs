//! Attachments: when they begin, what wakes them, and the final reads.

use super::super::client::Client;
use super::super::node::NodeId;
use super::{Due, FIRST_CLIENT, Packet, World};

impl World {
    /// Makes a new attachment of a volume; the previous one does not know of it.
    pub(super) fn attach(&mut self, volume: usize) {
        if self.is_quiet {
            return;
        }
        let id = self.next_client;
        self.next_client += 1;
        let epoch = id - FIRST_CLIENT + 1;
        match Client::new(&self.shape, volume, epoch, NodeId(id), self.now) {
            Ok(client) => self.clients.insert(id, client),
            Err(e) => return self.fail(e),
        };
        self.say(format_args!("client {id} attaches volume {volume}"));
        self.coverage.attachments += 1;
        self.current[volume] = id;
        self.drive(id);
        let lives = self.shape.attached_nanos / 2 + self.rng.below(self.shape.attached_nanos);
        self.after(lives, Due::Attach(volume));
        for _ in 0..self.shape.slots {
            let wait = self.shape.think.draw(&mut self.rng);
            self.after(wait, Due::Ask(id));
        }
    }

    pub(super) fn wake(&mut self, id: u32) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.wakes_at = None;
            client.tick(self.now);
            self.drive(id);
        }
    }

    pub(super) fn ask(&mut self, id: u32) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if client.is_fenced() || self.is_quiet {
            return;
        }
        client.tick(self.now);
        client.ask(&mut self.history, self.now, &mut self.coverage);
        self.drive(id);
    }

    /// Sends a client's requests, and records its answers.
    pub(super) fn drive(&mut self, id: u32) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let node = client.node;
        client.tick(self.now);
        while let Some(send) = client.next_send() {
            let to = NodeId(send.store as u32 - 1);
            self.network
                .send(self.now, node, to, Packet::Request(send.request));
        }
        let answers = client.take_answers(&mut self.history, self.now, &mut self.coverage);
        if let Some(due) = client
            .next_due()
            .filter(|&due| client.wakes_at.is_none_or(|w| w > due))
        {
            client.wakes_at = Some(due);
            self.at(due, Due::Wake(id));
        }
        let answers = match answers {
            Ok(answers) => answers,
            Err(e) => return self.fail(e),
        };
        self.has_attached(id);
        if self.is_quiet {
            return self.read_all(id);
        }
        for _ in 0..answers {
            let wait = self.shape.think.draw(&mut self.rng);
            self.after(wait, Due::Ask(id));
        }
    }

    /// An attachment that is answered ends the previous ones.
    fn has_attached(&mut self, id: u32) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if client.is_fenced() && !client.told.0 {
            client.told.0 = true;
            self.coverage.fenced += 1;
        }
        if !client.is_attached() || client.told.1 {
            return;
        }
        client.told.1 = true;
        let (volume, epoch) = (client.volume_nth, client.epoch);
        let moment = self.history.mark(self.now);
        self.say(format_args!("client {id} has attached volume {volume}"));
        for older in self.clients.values_mut() {
            if older.volume_nth == volume && older.epoch < epoch {
                older.is_replaced = true;
                self.seen.replaced.insert(older.node.0, moment);
            }
        }
    }

    /// Clients submit no more.
    pub(super) fn quiet(&mut self) {
        self.say(format_args!("clients ask for no more"));
        self.is_quiet = true;
        for volume in 0..self.current.len() {
            self.read_all(self.current[volume]);
        }
    }

    /// Reads all of a client's volume, once nothing else is open.
    fn read_all(&mut self, id: u32) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let volume = client.volume_nth;
        if self.current[volume] != id || client.open() > 0 {
            return;
        }
        let units = self.shape.units(volume);
        let (next, is_read) = &mut self.final_reads[volume];
        if *next >= units {
            *is_read = true;
            return;
        }
        let len = (units - *next).min(64);
        client.read(*next, len, &mut self.history, self.now, &mut self.coverage);
        *next += len;
        self.drive(id);
    }
}
