//! Where the program listens: on what its plan says, and on what it was given.

use std::fmt;
use std::str::FromStr;

use weft::tls::Tls;
use weft::{Address, Bound, Listener, Running};

use crate::plan::Plan;

/// Why a socket is listened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) source: Source,
    /// Whether TLS is spoken there.
    pub(crate) tls: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The plan says so, in these words.
    Plan(String),
    /// The service manager made it.
    Manager,
}

/// A socket that listens.
pub(crate) struct Open {
    pub(crate) place: Place,
    pub(crate) listener: Listener,
}

/// One that is being served. A place may have several.
pub(crate) struct Served {
    pub(crate) place: Place,
    pub(crate) bound: Bound,
}

/// What a new plan changes.
pub(crate) struct Change {
    pub(crate) opened: Vec<Open>,
    pub(crate) closed: Vec<Bound>,
}

impl Open {
    /// What is to be known of a socket, and the socket with TLS where it is spoken.
    pub(crate) fn secured(self, tls: Option<&Tls>) -> Result<(Served, Listener), String> {
        let Open { place, listener } = self;
        let listener = match (place.tls, tls) {
            (false, _) => listener,
            (true, Some(tls)) => listener.with_tls(tls),
            (true, None) => {
                return Err(format!("there is no certificate for {}", listener.bound()));
            }
        };
        Ok((Served { place, bound: listener.bound().clone() }, listener))
    }
}

/// The sockets of a plan: those that are there already, and new ones. What nobody wants is
/// closed.
pub(crate) fn open(plan: &Plan, found: Vec<Open>) -> weft::Result<Vec<Open>> {
    let is_given = |open: &Open| open.place.source == Source::Manager;
    let (mut sockets, mut found): (Vec<Open>, Vec<Open>) = found.into_iter().partition(is_given);
    for place in wanted(plan, !sockets.is_empty()) {
        let is_it = |open: &mut Open| open.place.source == place.source;
        let mut there: Vec<Open> = found.extract_if(.., is_it).collect();
        if there.is_empty() {
            there = bind(&place, plan)?;
        }
        for Open { listener, .. } in there {
            // The file of a socket that was made by us goes with us.
            sockets.push(Open { place: place.clone(), listener: listener.with_file()? });
        }
    }
    Ok(sockets)
}

/// What is to be opened and closed for another plan. Sockets that stay are not touched.
pub(crate) fn change(plan: &Plan, served: &[Served], running: &Running) -> weft::Result<Change> {
    let is_given = served.iter().any(|known| known.place.source == Source::Manager);
    let wanted = wanted(plan, is_given);
    let mut opened = Vec::new();
    for place in &wanted {
        if served.iter().any(|known| known.place == *place) {
            continue;
        }
        // The same address may go over from HTTP to HTTPS.
        let same = served.iter().filter(|known| known.place.source == place.source);
        let bound: Vec<&Bound> =
            same.map(|known| &known.bound).filter(|bound| bound.address().is_some()).collect();
        if bound.is_empty() {
            opened.extend(bind(place, plan)?);
            continue;
        }
        for (known, socket) in running.sockets()? {
            if bound.contains(&&known) {
                opened.push(Open { place: place.clone(), listener: Listener::inherited(socket)? });
            }
        }
    }
    let is_closed =
        |known: &&Served| known.place.source != Source::Manager && !wanted.contains(&known.place);
    let closed = served.iter().filter(is_closed).map(|known| known.bound.clone()).collect();
    Ok(Change { opened, closed })
}

/// The places of a plan. Those that nobody asked for are not opened where sockets are given.
fn wanted(plan: &Plan, is_given: bool) -> Vec<Place> {
    let plain = (&plan.listen, false);
    let secure = plan.tls.as_ref().map(|tls| (&tls.listen, true));
    let mut places = Vec::new();
    for (addresses, tls) in [Some(plain), secure].into_iter().flatten() {
        if !(addresses.are_defaults && is_given) {
            let place = |text: &String| Place { source: Source::Plan(text.clone()), tls };
            places.extend(addresses.list.iter().map(place));
        }
    }
    places
}

fn bind(place: &Place, plan: &Plan) -> weft::Result<Vec<Open>> {
    let Source::Plan(text) = &place.source else { return Ok(Vec::new()) };
    let address: Address = text.parse()?;
    let listeners = Listener::bind(&address, &plan.limits)?.into_iter();
    Ok(listeners.map(|listener| Open { place: place.clone(), listener }).collect())
}

/// As one process tells another.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = if self.tls { "https" } else { "http" };
        match &self.source {
            Source::Plan(text) => write!(f, "{protocol} {text}"),
            Source::Manager => write!(f, "{protocol}"),
        }
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Place, ()> {
        let (protocol, source) = match text.split_once(' ') {
            Some((protocol, text)) => (protocol, Source::Plan(text.to_owned())),
            None => (text, Source::Manager),
        };
        match protocol {
            "http" => Ok(Place { source, tls: false }),
            "https" => Ok(Place { source, tls: true }),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_as_they_are() {
        for (place, text) in [
            (Place { source: Source::Plan(":80".into()), tls: false }, "http :80"),
            (Place { source: Source::Plan("unix:/a b".into()), tls: true }, "https unix:/a b"),
            (Place { source: Source::Manager, tls: true }, "https"),
        ] {
            assert_eq!(place.to_string(), text);
            assert_eq!(text.parse(), Ok(place));
        }
        assert_eq!("end".parse::<Place>(), Err(()));
    }
}
