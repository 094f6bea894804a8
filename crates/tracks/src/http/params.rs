//! Parameters of a call, from its path and its query. Each error names the parameter. Unknown
//! parameters are refused, because a typo would silently change the answer.

use axum::extract::{FromRequestParts, Query, RawPathParams};
use axum::http::Uri;
use axum::http::request::Parts;
use base::Error;

use super::problem::{Kind, Problem, text};
use super::time;
use crate::geo::position::Position;
use crate::geo::shape::{Circle, Rectangle, Shape};
use crate::geo::surface::Surface;
use crate::model::name::Name;
use crate::model::time::Time;

/// The names in the path.
#[derive(Debug)]
pub(crate) struct Path(Vec<(String, String)>);

/// The parameters in the query.
#[derive(Debug)]
pub(crate) struct Params {
    left: Vec<(String, String)>,
    known: Vec<&'static str>,
}

impl<S: Send + Sync> FromRequestParts<S> for Path {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let all = RawPathParams::from_request_parts(parts, state).await;
        let all = all.map_err(|e| Problem::parameter(format!("the path: {}", e.body_text())))?;
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Ok(Self(all.iter().map(pair).collect()))
    }
}

impl Path {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// A name in the path.
    pub(crate) fn name(&self, name: &str) -> Result<Name, Problem> {
        let found = Name::new(self.get(name).unwrap_or_default());
        found.map_err(|e| Problem::parameter(text(&e)))
    }

    /// The name of the fleet.
    pub(crate) fn fleet(&self) -> Result<Name, Problem> {
        self.name("fleet")
    }

    /// The name of the entity.
    pub(crate) fn entity(&self) -> Result<Name, Problem> {
        self.name("entity")
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::of_uri(&parts.uri)
    }
}

impl Params {
    /// Parses the query of a URI. Errors: it is malformed.
    pub(crate) fn of_uri(uri: &Uri) -> Result<Self, Problem> {
        let all = Query::<Vec<(String, String)>>::try_from_uri(uri);
        let all = all.map_err(|e| Problem::parameter(format!("the query: {}", e.body_text())))?;
        Ok(Self {
            left: all.0,
            known: Vec::new(),
        })
    }
}

/// The id of an event.
pub(crate) fn event_id(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    // As in the OpenAPI description: a whole number of 63 bits.
    let number = text.parse().ok().filter(|_| is_number);
    number.filter(|id| i64::try_from(*id).is_ok())
}

fn wrong(name: &str, value: &str, what: &str) -> Problem {
    Problem::parameter(format!("{name}={value:.80}: {what}"))
}

fn no_area() -> Problem {
    Problem::parameter("give bbox=west,south,east,north or circle=latitude,longitude,metres")
}

impl Params {
    /// All values of a parameter.
    pub(crate) fn all(&mut self, name: &'static str) -> Vec<String> {
        self.known.push(name);
        let of_name = self.left.extract_if(.., |(known, _)| known == name);
        of_name.map(|(_, value)| value).collect()
    }

    /// A parameter that may be given at most once.
    pub(crate) fn text(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        let mut all = self.all(name);
        let one = all.pop();
        if all.is_empty() {
            return Ok(one);
        }
        Err(Problem::parameter(format!(
            "{name} is given {} times: give it once",
            all.len() + 1
        )))
    }

    /// A number within bounds.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        (least, most): (f64, f64),
    ) -> Result<Option<f64>, Problem> {
        let Some(value) = self.text(name)? else {
            return Ok(None);
        };
        let number = value
            .parse()
            .map_err(|_| wrong(name, &value, "this is no number"))?;
        if (least..=most).contains(&number) {
            return Ok(Some(number));
        }
        let what = format!("it is not within {least} and {most}");
        Err(wrong(name, &value, &what))
    }

    /// A whole number within bounds, or the default.
    pub(crate) fn count(
        &mut self,
        name: &'static str,
        (least, most): (usize, usize),
        or: usize,
    ) -> Result<usize, Problem> {
        let Some(value) = self.text(name)? else {
            return Ok(or);
        };
        let number = value
            .parse()
            .map_err(|_| wrong(name, &value, "this is no whole number"))?;
        if (least..=most).contains(&number) {
            return Ok(number);
        }
        let what = format!("it is not within {least} and {most}");
        Err(wrong(name, &value, &what))
    }

    /// A yes or no, or the default.
    pub(crate) fn flag(&mut self, name: &'static str, or: bool) -> Result<bool, Problem> {
        let Some(value) = self.text(name)? else {
            return Ok(or);
        };
        match value.as_str() {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(wrong(name, &value, "it is true or false")),
        }
    }

    /// The id of an event.
    pub(crate) fn id(&mut self, name: &'static str) -> Result<Option<u64>, Problem> {
        let Some(value) = self.text(name)? else {
            return Ok(None);
        };
        let id = event_id(&value);
        id.map(Some)
            .ok_or_else(|| wrong(name, &value, "it is no id of an event"))
    }

    /// A time.
    pub(crate) fn time(&mut self, name: &'static str) -> Result<Option<Time>, Problem> {
        let Some(value) = self.text(name)? else {
            return Ok(None);
        };
        let time = time::of_text(&value).map_err(|e| wrong(name, &value, &e))?;
        Ok(Some(time))
    }

    /// Seconds as microseconds.
    pub(crate) fn seconds(&mut self, name: &'static str) -> Result<Option<i64>, Problem> {
        let seconds = self.number(name, (0.0, 1e10))?;
        Ok(seconds.map(|s| (s * 1e6).round() as i64))
    }

    /// The times `from` and `to`, both included.
    pub(crate) fn times(&mut self) -> Result<Option<(Time, Time)>, Problem> {
        let (from, to) = (self.time("from")?, self.time("to")?);
        if from.is_none() && to.is_none() {
            return Ok(None);
        }
        let times = (from.unwrap_or(Time::MIN), to.unwrap_or(Time::MAX));
        if times.0 > times.1 {
            return Err(Problem::parameter("from is later than to"));
        }
        Ok(Some(times))
    }

    fn numbers<const N: usize>(name: &str, value: &str, what: &str) -> Result<[f64; N], Problem> {
        let numbers: Result<Vec<f64>, _> = value.split(',').map(|n| n.trim().parse()).collect();
        let numbers = numbers.ok().and_then(|n| <[f64; N]>::try_from(n).ok());
        numbers.ok_or_else(|| wrong(name, value, &format!("it is {what}")))
    }

    /// The surface, by the parameter `geodesic`.
    pub(crate) fn surface(&mut self) -> Result<Surface, Problem> {
        match self.text("geodesic")?.as_deref() {
            None | Some("false") => Ok(Surface::Sphere),
            Some("true") => Ok(Surface::Ellipsoid),
            Some(other) => Err(wrong("geodesic", other, "it is true or false")),
        }
    }

    /// The area of `bbox` or `circle`, exactly one of which must be given.
    pub(crate) fn area(&mut self) -> Result<Box<dyn Shape + Send + Sync>, Problem> {
        self.maybe_area()?.ok_or_else(no_area)
    }

    /// Like [`Params::area`], but both may be missing.
    pub(crate) fn maybe_area(&mut self) -> Result<Option<Box<dyn Shape + Send + Sync>>, Problem> {
        let (bbox, circle) = (self.text("bbox")?, self.text("circle")?);
        let surface = self.surface()?;
        let named = |name, value, e: Error| wrong(name, value, &text(&e));
        match (bbox, circle) {
            (Some(_), None) if surface == Surface::Ellipsoid => Err(Problem::parameter(
                "geodesic is of circles: the edges of bbox are meridians and parallels",
            )),
            (Some(value), None) => {
                let [w, s, e, n] =
                    Self::numbers("bbox", &value, "west,south,east,north in degrees")?;
                let area = Rectangle::of_degrees(w, s, e, n);
                Ok(Some(Box::new(area.map_err(|e| named("bbox", &value, e))?)))
            }
            (None, Some(value)) => {
                let what = "latitude,longitude in degrees,radius in metres";
                let [lat, lon, radius] = Self::numbers("circle", &value, what)?;
                let area = Position::of_degrees(lat, lon)
                    .and_then(|centre| Circle::new(centre, radius))
                    .map_err(|e| named("circle", &value, e))?;
                Ok(Some(Box::new(area.on(surface))))
            }
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(no_area()),
        }
    }

    /// Errors: there is an unknown parameter.
    pub(crate) fn end(self) -> Result<(), Problem> {
        let Some((name, _)) = self.left.first() else {
            return Ok(());
        };
        let known = if self.known.is_empty() {
            "this call has none".to_owned()
        } else {
            format!("this call has {}", self.known.join(", "))
        };
        Err(Problem::new(
            Kind::InvalidParameter,
            format!("{name:.80?} is no parameter here: {known}"),
        ))
    }
}
