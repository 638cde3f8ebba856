//! Which names there are.

use std::collections::BTreeSet;

use leasehold_core::LockName;

use crate::fail::Result;
use crate::keys::{lines_from, name_of};
use crate::proto::RangeRequest;
use crate::store::EtcdStore;

/// So many names are answered at a time, and so many keys are read.
const PAGE: usize = 1000;
const KEYS: i64 = 10_000;

impl EtcdStore {
    pub(crate) async fn names(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>> {
        let of = &self.0.settings.prefix;
        let mut names = BTreeSet::new();
        // Keys are in another order than names where a name is escaped, so all are read.
        let (mut first, end) = lines_from(of, prefix);
        loop {
            let range = RangeRequest {
                key: first,
                range_end: end.clone(),
                limit: KEYS,
                keys_only: true,
                ..RangeRequest::default()
            };
            let found = self.0.link.range(range).await?;
            names.extend(found.kvs.iter().filter_map(|kv| name_of(of, &kv.key)));
            let Some(last) = found.kvs.last().filter(|_| found.more) else { break };
            first = [&last.key[..], &[0]].concat();
        }
        let wanted = names
            .into_iter()
            .filter(|name| name.as_str().starts_with(prefix) && after.is_none_or(|after| name > after));
        Ok(wanted.take(PAGE).collect())
    }
}
