//! Where objects go: a file of places, made once, so that both engines get the same.

use std::path::PathBuf;

use base::rng::Rng;
use base::{Error, Result};
use tracks::geo::cell::Cell;
use tracks::geo::position::Position;

/// What is made.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file
    #[arg(long)]
    out: PathBuf,
    /// How many objects
    #[arg(long, default_value_t = 1_000_000)]
    objects: u32,
    /// How many places in all, each object's first among them
    #[arg(long, default_value_t = 8_000_000)]
    places: usize,
    /// Other places
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Where an object goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) object: u32,
    pub(crate) position: Position,
    pub(crate) speed: u16,
    pub(crate) course: u16,
}

impl Place {
    const LEN: usize = 16;

    fn encode(self, out: &mut Vec<u8>) {
        out.extend(self.object.to_le_bytes());
        out.extend(self.position.lat().to_le_bytes());
        out.extend(self.position.lon().to_le_bytes());
        out.extend(self.speed.to_le_bytes());
        out.extend(self.course.to_le_bytes());
    }

    fn decode(bytes: [u8; Self::LEN]) -> Result<Self> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        Ok(Self {
            object: u32::from_le_bytes([a, b, c, d]),
            position: Position::of_units(
                i32::from_le_bytes([e, f, g, h]),
                i32::from_le_bytes([i, j, k, l]),
            )?,
            speed: u16::from_le_bytes([m, n]),
            course: u16::from_le_bytes([o, p]),
        })
    }
}

/// Makes the file: objects that walk, from cell to cell.
pub(crate) fn make(args: &Args) -> Result<PathBuf> {
    let mut rng = Rng::new(args.seed);
    let mut bytes = Vec::with_capacity(args.places * Place::LEN);
    let mut objects: Vec<(Position, f64)> = Vec::with_capacity(args.objects as usize);
    for nth in 0..args.places {
        let object = nth as u32 % args.objects.max(1);
        let turn = (rng.below(1001) as f64 - 500.0) / 1000.0;
        let (position, course) = match objects.get(object as usize) {
            None => {
                let part = |rng: &mut Rng| rng.below(1_000_001) as f64 / 1e6 * 0.6;
                let start =
                    Position::of_degrees(59.0 + part(&mut rng), 17.7 + 2.0 * part(&mut rng))?;
                objects.push((start, turn));
                (start, turn)
            }
            Some(&(position, course)) => step(position, course + turn)?,
        };
        if let Some(there) = objects.get_mut(object as usize) {
            *there = (position, course);
        }
        let degrees = course.to_degrees().rem_euclid(360.0);
        let place = Place {
            object,
            position,
            speed: 1400 + rng.below(300) as u16,
            course: (degrees * 100.0) as u16 % 36_000,
        };
        place.encode(&mut bytes);
    }
    std::fs::write(&args.out, bytes).map_err(|e| Error::io("cannot write", &args.out, e))?;
    Ok(args.out.clone())
}

/// Some metres on, into another cell.
fn step(from: Position, course: f64) -> Result<(Position, f64)> {
    let (lat, lon) = from.degrees();
    let mut metres = 60.0;
    loop {
        let north = metres * course.cos() / 111_195.0;
        let east = metres * course.sin() / (111_195.0 * lat.to_radians().cos());
        let to = Position::of_degrees((lat + north).clamp(-80.0, 80.0), lon + east)?;
        if Cell::of(to) != Cell::of(from) {
            return Ok((to, course));
        }
        metres += 20.0;
    }
}

/// Reads a file of places: for each of so many threads those of its objects, in their order.
pub(crate) fn read(path: &PathBuf, threads: usize) -> Result<Vec<Vec<Place>>> {
    let bytes = std::fs::read(path).map_err(|e| {
        Error::io("cannot read", path, e).hint("`tracks_bench places` makes such a file")
    })?;
    let mut all = vec![Vec::new(); threads];
    let (places, rest) = bytes.as_chunks::<{ Place::LEN }>();
    if !rest.is_empty() {
        return Err(Error::corruption("not a file of places").file(path));
    }
    for place in places {
        let place = Place::decode(*place)?;
        if let Some(of_thread) = all.get_mut(place.object as usize % threads) {
            of_thread.push(place);
        }
    }
    Ok(all)
}
