//! Ctrl-Z and `fg`: the command and this process stop together, and the guard renews the lease meanwhile.

use std::cell::RefCell;
use std::rc::Rc;

use leasehold::{Lease, LeaseTicket, Leasehold, LostReason};

use crate::child::Child;
use crate::guard::{Carry, Order};
use crate::human::rough;
use crate::supervise::{State, Watch, deadline};
use crate::timetable::Timetable;

/// The lease as it stands: after Ctrl-Z and `fg` it is another object.
#[derive(Debug)]
pub(crate) struct Held(RefCell<Option<Rc<Lease>>>);

impl Held {
    /// `None` for a command without a lock.
    pub(crate) fn new(lease: Option<Lease>) -> Self {
        Self(RefCell::new(lease.map(Rc::new)))
    }

    /// The lease now.
    pub(crate) fn now(&self) -> Option<Rc<Lease>> {
        self.0.borrow().clone()
    }

    fn put(&self, lease: Lease) {
        self.0.replace(Some(Rc::new(lease)));
    }

    /// Takes it out, unless somebody is using it.
    pub(crate) fn take(&self) -> Option<Lease> {
        match Rc::try_unwrap(self.0.take()?) {
            Ok(lease) => Some(lease),
            Err(used) => {
                self.0.replace(Some(used));
                None
            }
        }
    }
}

/// What it takes to go on with a lease in another process, and to have it back.
pub(crate) struct Elsewhere<'a> {
    pub(crate) client: &'a Leasehold,
    pub(crate) store: Option<String>,
    pub(crate) config: Option<String>,
}

impl Watch<'_> {
    /// The command was stopped, as by Ctrl-Z: so is this process, or the shell would wait for ever. The guard
    /// renews the lease meanwhile; where it cannot, the lease may be over when both are continued.
    pub(crate) async fn stopped(&mut self, child: &mut Child, state: &mut State) {
        if !child.has_terminal() {
            return;
        }
        let ticket = self.hand_over(child).await;
        let name = self.name;
        match (self.lease.now(), &ticket) {
            (_, Some(_)) => self.talk.tell(format_args!("still holding {name} while stopped")),
            (Some(lease), None) => self.talk.tell(format_args!(
                "{name} stopped; its lease ends in {} unless continued (fg)",
                rough(lease.remaining())
            )),
            (None, None) => self.talk.tell(format_args!("{name} stopped")),
        }
        child.stop_together();
        if let Some(ticket) = ticket
            && !self.take_back(ticket, child).await
        {
            return self.gone(LostReason::Expired, child, state);
        }
        match self.lease.now().map(|lease| lease.check()) {
            Some(Err(lost)) => self.gone(lost.reason, child, state),
            Some(Ok(_)) | None => child.go_on(),
        }
    }

    async fn hand_over(&mut self, child: &mut Child) -> Option<LeaseTicket> {
        let Elsewhere { store, config, client: _ } = self.elsewhere.as_ref()?;
        let ticket = self.lease.now()?.ticket().await.ok()?;
        let carry = Carry {
            store: store.clone(),
            config: config.clone(),
            name: self.name.to_owned(),
            ticket: String::from_utf8(ticket.to_bytes()).ok()?,
        };
        if !child.carry(&Order::Carry(carry)).await {
            // It may have got it all the same, too late for us: it lets go of it.
            return child.carry(&Order::Back).await.then_some(()).and(None);
        }
        let Some(lease) = self.lease.take() else {
            // The command asks for more of it just now: we have it ourselves, then.
            child.carry(&Order::Back).await;
            return None;
        };
        lease.keep();
        Some(ticket)
    }

    /// Takes the lease back from the guard.
    async fn take_back(&mut self, ticket: LeaseTicket, child: &mut Child) -> bool {
        let Some(Elsewhere { client, .. }) = &self.elsewhere else { return false };
        child.carry(&Order::Back).await;
        let Ok(lease) = client.resume(ticket).await else { return false };
        let table = Timetable::new(self.clock.now(), lease.remaining(), self.grace);
        if let Some(deadline) = deadline(table, self.on_lost) {
            child.beat(deadline);
        }
        self.table = Some(table);
        self.lease.put(lease);
        true
    }
}
