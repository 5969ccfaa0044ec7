//! Where the program listens: on what its plan says, and on what it was given.

use std::fmt;
use std::str::FromStr;

use weft::tls::Tls;
use weft::{Address, Bound, Listener, Running};

use crate::plan::Plan;
use crate::status;

/// Why a socket is listened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) source: Source,
    pub(crate) protocol: Protocol,
}

/// What is spoken there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    /// The same with TLS.
    Https,
    /// HTTP, about the server itself.
    Status,
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
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) place: Place,
    pub(crate) bound: Bound,
}

/// What a new plan changes.
pub(crate) struct Change {
    pub(crate) opened: Vec<Open>,
    pub(crate) closed: Vec<Served>,
}

impl Place {
    /// Whether a socket of the one may go over to the other: the same address from HTTP to HTTPS.
    fn is_beside(&self, other: &Place) -> bool {
        let is_status = |place: &Place| place.protocol == Protocol::Status;
        self.source == other.source && is_status(self) == is_status(other)
    }

    fn is_managers(&self) -> bool {
        self.source == Source::Manager
    }
}

impl Open {
    /// What is to be known of a socket, and the socket with TLS where it is spoken.
    pub(crate) fn secured(self, tls: Option<&Tls>) -> Result<(Served, Listener), String> {
        let Open { place, listener } = self;
        let listener = match (place.protocol, tls) {
            (Protocol::Http | Protocol::Status, _) => listener,
            (Protocol::Https, Some(tls)) => listener.with_tls(tls),
            (Protocol::Https, None) => {
                return Err(format!("there is no certificate for {}", listener.bound()));
            }
        };
        Ok((Served { place, bound: listener.bound().clone() }, listener))
    }
}

/// The sockets of a plan: those that are there already, and new ones. What nobody wants is
/// closed.
pub(crate) fn open(plan: &Plan, found: Vec<Open>) -> weft::Result<Vec<Open>> {
    let is_given = |open: &Open| open.place.is_managers();
    let (mut sockets, mut found): (Vec<Open>, Vec<Open>) = found.into_iter().partition(is_given);
    for place in wanted(plan, sockets.iter().map(|open| &open.place)) {
        let is_it = |open: &mut Open| open.place == place;
        let mut there: Vec<Open> = found.extract_if(.., is_it).collect();
        if there.is_empty() {
            let is_beside = |open: &mut Open| open.place.is_beside(&place);
            there = found.extract_if(.., is_beside).collect();
        }
        if there.is_empty() {
            there = bind(&place, plan)?;
        }
        for Open { listener, .. } in there {
            // The file of a socket that was made by us goes with us, once it is ours alone.
            sockets.push(Open { place: place.clone(), listener: listener.with_file()? });
        }
    }
    Ok(sockets)
}

/// What is to be opened and closed for another plan, with the status endpoint or without. Sockets
/// that stay are not touched.
pub(crate) fn change(
    plan: &Plan,
    served: &[Served],
    running: &Running,
    has_status: bool,
) -> weft::Result<Change> {
    let mut wanted = wanted(plan, served.iter().map(|known| &known.place));
    wanted.retain(|place| has_status || place.protocol != Protocol::Status);
    let mut opened = Vec::new();
    for place in &wanted {
        if served.iter().any(|known| known.place == *place) {
            continue;
        }
        // The same address may go over from HTTP to HTTPS.
        let same = served.iter().filter(|known| known.place.is_beside(place));
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
    let is_closed = |known: &&Served| !known.place.is_managers() && !wanted.contains(&known.place);
    let closed = served.iter().filter(is_closed).cloned().collect();
    Ok(Change { opened, closed })
}

/// The places of a plan. Those that nobody asked for are not opened where sockets are given.
fn wanted<'a>(plan: &Plan, mut there: impl Iterator<Item = &'a Place>) -> Vec<Place> {
    let is_given = there.any(|place| place.is_managers() && place.protocol != Protocol::Status);
    let plain = (&plan.listen, Protocol::Http);
    let secure = plan.tls.as_ref().map(|tls| (&tls.listen, Protocol::Https));
    let status = (&plan.status, Protocol::Status);
    let mut places = Vec::new();
    for (addresses, protocol) in [Some(plain), secure, Some(status)].into_iter().flatten() {
        if !(addresses.are_defaults && is_given) {
            let place = |text: &String| Place { source: Source::Plan(text.clone()), protocol };
            places.extend(addresses.list.iter().map(place));
        }
    }
    places
}

fn bind(place: &Place, plan: &Plan) -> weft::Result<Vec<Open>> {
    let Source::Plan(text) = &place.source else { return Ok(Vec::new()) };
    let address: Address = text.parse()?;
    let listeners = match place.protocol {
        Protocol::Http | Protocol::Https => Listener::bind(&address, &plan.limits)?,
        Protocol::Status => Listener::bind(&address, &status::limits())?,
    };
    let listeners = listeners.into_iter();
    Ok(listeners.map(|listener| Open { place: place.clone(), listener }).collect())
}

/// As one process tells another.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Http => "http",
            Protocol::Https => "https",
            Protocol::Status => "status",
        };
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
        let protocol = match protocol {
            "http" => Protocol::Http,
            "https" => Protocol::Https,
            "status" => Protocol::Status,
            _ => return Err(()),
        };
        Ok(Place { source, protocol })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_socket_needs_no_default() {
        use crate::config::{Config, Text};
        let (none, tls) = ("", "[tls]\nself_signed = true\n");
        let status = "[status]\nlisten = \":9\"\n";
        for (text, given, expected) in [
            (none, None, "http 127.0.0.1:8080"),
            (none, Some(Protocol::Http), ""),
            (none, Some(Protocol::Status), "http 127.0.0.1:8080"),
            (tls, None, "https 127.0.0.1:8443"),
            (tls, Some(Protocol::Http), ""),
            (status, None, "http 127.0.0.1:8080, status :9"),
            (status, Some(Protocol::Https), "status :9"),
        ] {
            let text = format!("{text}[hosts.\"*\"]\n\"/\" = \"<< /a/\"\n");
            let config = Config::parse(&Text::new("f", text), std::path::Path::new("")).unwrap();
            let plan = Plan::new(config).map_err(|problems| format!("{problems:?}")).unwrap();
            let there = given.map(|protocol| Place { source: Source::Manager, protocol });
            let places = wanted(&plan, there.iter());
            let places: Vec<String> = places.iter().map(Place::to_string).collect();
            assert_eq!(places.join(", "), expected, "{given:?}");
        }
    }

    #[test]
    fn places_are_told_as_they_are() {
        use Protocol::{Http, Https, Status};
        let plan = |text: &str| Source::Plan(text.to_owned());
        for (source, protocol, text) in [
            (plan(":80"), Http, "http :80"),
            (plan("unix:/a b"), Https, "https unix:/a b"),
            (Source::Manager, Https, "https"),
            (plan(":81"), Status, "status :81"),
            (Source::Manager, Status, "status"),
        ] {
            let place = Place { source, protocol };
            assert_eq!(place.to_string(), text);
            assert_eq!(text.parse(), Ok(place));
        }
        assert_eq!("end".parse::<Place>(), Err(()));
    }
}
