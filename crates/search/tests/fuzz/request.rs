//! Ranges, sorts, bookmarks, drilldown, counts and groups are rejected, or have a result with valid bookmarks.

use settee_search::{Grouping, Query, Range, Request, SearchLimits, Sort};

use crate::query::{index, is_of_client};

pub(crate) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let lines: Vec<&str> = text.split('\n').collect();
    let line = |number: usize| lines.get(number).copied().unwrap_or_default();
    let mut request = Request::new(Query::All);
    request.limit = 2;
    request.ranges.extend(Range::parse_classic("range", line(0)).ok().map(|range| ("n".to_owned(), vec![range])));
    request.sort.extend([Sort::parse_classic(line(1)).ok(), Sort::parse(line(2)).ok()].into_iter().flatten());
    request.bookmark = Some(line(3).to_owned()).filter(|bookmark| !bookmark.is_empty());
    if !line(4).is_empty() {
        request.counts.push(line(4).to_owned());
        request.group = Some(Grouping { field: line(4).to_owned(), limit: 3, sort: request.sort.clone() });
    }
    request.drilldown = lines.iter().skip(5).map(|line| line.split(' ').map(str::to_owned).collect()).collect();
    for group in [None, request.group.clone()] {
        let limits = SearchLimits::none();
        match index().search(&Request { group, ..request.clone() }, &limits) {
            Ok(answer) => {
                let next = Request { bookmark: Some(answer.bookmark), ..request.clone() };
                assert!(index().search(&Request { group: None, ..next }, &limits).is_ok(), "an own bookmark");
            }
            Err(error) => assert!(is_of_client(&error), "{error:?}"),
        }
    }
}
