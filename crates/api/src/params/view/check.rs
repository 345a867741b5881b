//! Validation of view parameters against each other, in CouchDB's order (`couch_mrview_util:validate_args`),
//! because the first contradiction is reported.

use settee_database::Layout;
use settee_settings::{Settings, query_server_config};
use settee_views::{QueryError, Reduce, ViewError};

use super::{KeyList, ViewParams};
use crate::Error;

/// Maximum small integer of Erlang: CouchDB's row limit if none is set.
const MAX_LIMIT: u64 = 576_460_752_303_423_487;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Documents(Layout),
    Map(Layout),
    Reducing(Layout),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grouping {
    Exact,
    /// Level 0: no grouping.
    Level(u64),
}

impl ViewParams {
    pub(crate) fn check(&mut self, kind: Kind, settings: &dyn Settings) -> Result<(), Error> {
        match kind {
            Kind::Documents(_) => {}
            Kind::Map(layout) | Kind::Reducing(layout) => self.apply_limit(layout, settings)?,
        }
        let reduces = matches!(kind, Kind::Reducing(_)) && self.reduce != Some(false);
        self.check_grouping(reduces)?;
        if reduces && self.include_docs {
            return Err(query_error(QueryError::DocsOnReduce));
        }
        if reduces && self.conflicts.is_some() {
            return Err(Error::query_parse("`conflicts` is invalid for reduce views."));
        }
        match (kind, &self.partition) {
            (Kind::Documents(Layout::Whole), Some(_)) => {
                Err(Error::query_parse("`partition` parameter is not supported on this db"))
            }
            (Kind::Documents(Layout::Partitioned), Some(_)) => self.apply_limit(Layout::Partitioned, settings),
            (Kind::Documents(_), None) => self.apply_limit(Layout::Whole, settings),
            (Kind::Map(Layout::Whole) | Kind::Reducing(Layout::Whole), None)
            | (Kind::Map(Layout::Partitioned) | Kind::Reducing(Layout::Partitioned), Some(_)) => Ok(()),
            (Kind::Map(Layout::Whole) | Kind::Reducing(Layout::Whole), Some(_)) => {
                Err(query_error(QueryError::PartitionOnGlobal))
            }
            (Kind::Map(Layout::Partitioned) | Kind::Reducing(Layout::Partitioned), None) => {
                Err(query_error(QueryError::PartitionMissing))
            }
        }
    }

    fn check_grouping(&self, reduces: bool) -> Result<(), Error> {
        let grouping = self.grouping()?;
        if !reduces && self.reduce == Some(true) {
            return Err(query_error(QueryError::ReduceOnMap));
        }
        if reduces && grouping != Grouping::Exact && matches!(self.keys, Some(KeyList::List(_))) {
            return Err(query_error(QueryError::ManyKeysOnReduce));
        }
        self.check_keys()?;
        if !reduces && grouping != Grouping::Level(0) {
            return Err(query_error(QueryError::GroupingOnMap));
        }
        Ok(())
    }

    fn check_keys(&self) -> Result<(), Error> {
        let is_compatible = match &self.keys {
            None => true,
            Some(KeyList::NoList) => return Err(Error::query_parse("`keys` must be an array of strings.")),
            Some(KeyList::List(keys)) => {
                let (start, end) = (self.start.as_ref(), self.end.as_ref());
                keys.is_empty()
                    || (start.is_none() && end.is_none())
                    || (keys.len() == 1 && start == keys.first() && end == keys.first())
            }
        };
        if is_compatible {
            return Ok(());
        }
        Err(Error::query_parse("`keys` is incompatible with `key`, `start_key` and `end_key`"))
    }

    fn grouping(&self) -> Result<Grouping, Error> {
        match (self.group, self.group_level) {
            (Some(false), Some(level)) if level > 0 => {
                Err(Error::query_parse("Can't specify group=false and group_level>0 at the same time"))
            }
            (Some(true), None) => Ok(Grouping::Exact),
            (_, level) => Ok(Grouping::Level(level.unwrap_or(0))),
        }
    }

    pub(super) fn reduction(&self) -> Reduce {
        match (self.reduce, self.grouping()) {
            (Some(false), _) => Reduce::Off,
            (_, Ok(Grouping::Exact)) => Reduce::Exact,
            (_, Ok(Grouping::Level(level))) if level > 0 => Reduce::Level(u32::try_from(level).unwrap_or(u32::MAX)),
            (Some(true), _) => Reduce::Whole,
            (None, _) => Reduce::Default,
        }
    }

    fn apply_limit(&mut self, layout: Layout, settings: &dyn Settings) -> Result<(), Error> {
        let key = match layout {
            Layout::Whole => &query_server_config::QUERY_LIMIT,
            Layout::Partitioned => &query_server_config::PARTITION_QUERY_LIMIT,
        };
        let most = key.of(settings);
        if self.limit.is_some_and(|limit| limit > most) {
            return Err(Error::query_parse(format!("Limit is too large, must not exceed {most}")));
        }
        if most < MAX_LIMIT {
            self.limit.get_or_insert(most);
        }
        Ok(())
    }
}

fn query_error(error: QueryError) -> Error {
    ViewError::Query(error).into()
}
