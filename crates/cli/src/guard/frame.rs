//! How orders and news are written: a length of two bytes, a letter, and the fields one after the other.

use leasehold::BootTime;

use super::link::{Carry, Deadline, News, Order};

/// The bytes of a frame before those that it counts.
pub(super) const HEAD: usize = 2;
/// More than any frame has.
const MOST: usize = 32 * 1024;

#[derive(Default)]
struct Packed(Vec<u8>);

impl Packed {
    fn new(tag: u8) -> Self {
        let mut packed = Self(vec![0; HEAD]);
        packed.0.push(tag);
        packed
    }

    fn flag(mut self, value: bool) -> Self {
        self.0.push(value.into());
        self
    }

    fn number(mut self, value: i32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn time(mut self, value: Option<BootTime>) -> Self {
        self.0.extend(value.map_or(u64::MAX, BootTime::as_nanos).to_le_bytes());
        self
    }

    fn deadline(self, value: Option<Deadline>) -> Self {
        self.time(value.and_then(|deadline| deadline.term)).time(value.map(|deadline| deadline.kill))
    }

    fn text(mut self, value: &str) -> Self {
        // A frame is far below what would be cut here; see `done`.
        let bytes = &value.as_bytes()[..value.len().min(MOST / 2)];
        self.0.extend(u16::try_from(bytes.len()).unwrap_or(0).to_le_bytes());
        self.0.extend(bytes);
        self
    }

    fn maybe(self, value: Option<&str>) -> Self {
        self.flag(value.is_some()).text(value.unwrap_or_default())
    }

    fn done(mut self) -> Vec<u8> {
        let length = u16::try_from(self.0.len() - HEAD).unwrap_or(0);
        self.0[..HEAD].copy_from_slice(&length.to_le_bytes());
        self.0
    }
}

struct Unpacked<'a>(&'a [u8]);

impl<'a> Unpacked<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn flag(&mut self) -> Option<bool> {
        Some(self.take(1)?[0] != 0)
    }

    fn number(&mut self) -> Option<i32> {
        Some(i32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn time(&mut self) -> Option<Option<BootTime>> {
        let nanos = u64::from_le_bytes(self.take(8)?.try_into().ok()?);
        Some((nanos != u64::MAX).then(|| BootTime::from_nanos(nanos)))
    }

    fn deadline(&mut self) -> Option<Option<Deadline>> {
        let (term, kill) = (self.time()?, self.time()?);
        Some(kill.map(|kill| Deadline { term, kill }))
    }

    fn text(&mut self) -> Option<String> {
        let length = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
        Some(String::from_utf8_lossy(self.take(length.into())?).into_owned())
    }

    fn maybe(&mut self) -> Option<Option<String>> {
        let (there, text) = (self.flag()?, self.text()?);
        Some(there.then_some(text))
    }
}

impl Order {
    pub(super) fn packed(&self) -> Vec<u8> {
        match self {
            Self::Start { deadline, before, foreground, variables } => {
                let packed = Packed::new(b'S').deadline(*deadline).time(*before).flag(*foreground);
                let packed = packed.number(i32::try_from(variables.len()).unwrap_or(0));
                variables
                    .iter()
                    .fold(packed, |packed, (name, value)| packed.text(name).maybe(value.as_deref()))
            }
            Self::Go(go) => Packed::new(b'G').flag(*go),
            Self::Attach { command, deadline, shelter } => {
                Packed::new(b'A').number(*command).deadline(*deadline).maybe(shelter.as_deref())
            }
            Self::Beat(deadline) => Packed::new(b'B').deadline(Some(*deadline)),
            Self::Signal(number) => Packed::new(b'N').number(*number),
            Self::Kill => Packed::new(b'K'),
            Self::Carry(Carry { store, config, name, ticket }) => {
                Packed::new(b'C').maybe(store.as_deref()).maybe(config.as_deref()).text(name).text(ticket)
            }
            Self::Back => Packed::new(b'R'),
            Self::LetGo => Packed::new(b'L'),
        }
        .done()
    }

    pub(super) fn unpacked(bytes: &[u8]) -> Option<Self> {
        let mut from = Unpacked(bytes);
        Some(match from.take(1)?[0] {
            b'S' => Self::Start {
                deadline: from.deadline()?,
                before: from.time()?,
                foreground: from.flag()?,
                variables: (0..from.number()?)
                    .map(|_| Some((from.text()?, from.maybe()?)))
                    .collect::<Option<_>>()?,
            },
            b'G' => Self::Go(from.flag()?),
            b'A' => {
                Self::Attach { command: from.number()?, deadline: from.deadline()?, shelter: from.maybe()? }
            }
            b'B' => Self::Beat(from.deadline()??),
            b'N' => Self::Signal(from.number()?),
            b'K' => Self::Kill,
            b'C' => Self::Carry(Carry {
                store: from.maybe()?,
                config: from.maybe()?,
                name: from.text()?,
                ticket: from.text()?,
            }),
            b'R' => Self::Back,
            b'L' => Self::LetGo,
            _ => return None,
        })
    }
}

impl News {
    pub(super) fn packed(&self) -> Vec<u8> {
        match self {
            Self::Ready { command } => Packed::new(b'r').number(*command),
            Self::Started => Packed::new(b's'),
            Self::Failed(number) => Packed::new(b'f').number(*number),
            Self::Stopped => Packed::new(b't'),
            Self::Sheltered(path) => Packed::new(b'c').text(path),
            Self::Ended { status, by_guard, left, names } => Packed::new(b'e')
                .number(*status)
                .flag(*by_guard)
                .number(i32::try_from(*left).unwrap_or(i32::MAX))
                .text(names),
            Self::Gone => Packed::new(b'g'),
            Self::Carried(carried) => Packed::new(b'd').flag(*carried),
        }
        .done()
    }

    pub(super) fn unpacked(bytes: &[u8]) -> Option<Self> {
        let mut from = Unpacked(bytes);
        Some(match from.take(1)?[0] {
            b'r' => Self::Ready { command: from.number()? },
            b's' => Self::Started,
            b'f' => Self::Failed(from.number()?),
            b't' => Self::Stopped,
            b'c' => Self::Sheltered(from.text()?),
            b'e' => Self::Ended {
                status: from.number()?,
                by_guard: from.flag()?,
                left: u32::try_from(from.number()?).ok()?,
                names: from.text()?,
            },
            b'g' => Self::Gone,
            b'd' => Self::Carried(from.flag()?),
            _ => return None,
        })
    }
}
