//! [`Results`]: results of a run, which `report` formats.

use crate::measure::{Better, Cell, Figure, Limit, Metric};
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) servers: Vec<ServerName>,
    pub(crate) seed: u64,
    pub(crate) tables: Vec<Table>,
    pub(crate) failures: Vec<Failure>,
    pub(crate) machine: Vec<(String, Figure)>,
    pub(crate) limits: HashMap<Limit, f64>,
}

#[derive(Clone, Debug)]
pub(crate) struct ServerName {
    pub(crate) url: String,
    pub(crate) product: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) workload: String,
    pub(crate) cell: String,
    pub(crate) server: usize,
    pub(crate) text: String,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) cell: Cell,
    pub(crate) records: Vec<Record>,
    pub(crate) skipped: Vec<(usize, String)>,
    pub(crate) series: Vec<(usize, Series)>,
}

#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) metric: Metric,
    pub(crate) limit: Option<Limit>,
    pub(crate) values: Vec<Vec<f64>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Results {
    pub(crate) fn table(&mut self, title: &str, cells: &[Cell]) -> usize {
        let rows = cells.iter().map(|cell| Row {
            cell: cell.clone(),
            records: Vec::new(),
            skipped: Vec::new(),
            series: Vec::new(),
        });
        self.tables.push(Table { title: title.into(), rows: rows.collect() });
        self.tables.len() - 1
    }

    pub(crate) fn add(&mut self, table: usize, row: usize, server: usize, figures: &[Figure], series: Option<Series>) {
        let servers = self.servers.len();
        let row = &mut self.tables[table].rows[row];
        for figure in figures {
            let position = row.records.iter().position(|record| record.metric == figure.metric).unwrap_or_else(|| {
                let values = vec![Vec::new(); servers];
                row.records.push(Record { metric: figure.metric, limit: figure.limit, values });
                row.records.len() - 1
            });
            row.records[position].values[server].push(figure.value);
        }
        // One line per cell and server shows the shape. The last run is kept because its caches are warm.
        if let Some(series) = series {
            row.series.retain(|(other, _)| *other != server);
            row.series.push((server, series));
        }
    }

    pub(crate) fn skip(&mut self, table: usize, row: usize, server: usize, reason: String) {
        let skipped = &mut self.tables[table].rows[row].skipped;
        if !skipped.iter().any(|(other, _)| *other == server) {
            skipped.push((server, reason));
        }
    }
}

impl Table {
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let mut metrics: Vec<Metric> = Vec::new();
        for record in self.rows.iter().flat_map(|row| &row.records) {
            if !metrics.contains(&record.metric) {
                metrics.push(record.metric);
            }
        }
        metrics
    }
}

impl Row {
    pub(crate) fn record(&self, metric: Metric) -> Option<&Record> {
        self.records.iter().find(|record| record.metric == metric)
    }
}

impl Record {
    /// The ratio of the first server to the second for each run; above 1 the first was better.
    pub(crate) fn ratios(&self) -> Vec<f64> {
        let [first, second] = &self.values[..] else {
            return Vec::new();
        };
        let pairs = first.iter().zip(second);
        match self.metric.better {
            Better::Higher => pairs.map(|(first, second)| first / second).collect(),
            Better::Lower => pairs.map(|(first, second)| second / first).collect(),
            Better::Neither => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_say_how_much_better_the_first_is() {
        let values = vec![vec![10.0, 30.0], vec![5.0, 10.0]];
        let check = |metric, expected: &[f64]| {
            assert_eq!(Record { metric, limit: None, values: values.clone() }.ratios(), expected);
        };
        check(Metric::higher("rate", "/s"), &[2.0, 3.0]);
        check(Metric::lower("time", "s"), &[0.5, 1.0 / 3.0]);
        check(Metric::neither("size", "B"), &[]);
    }

    #[test]
    fn runs_of_a_cell_meet_in_one_record() {
        let name = ServerName { url: "u".into(), product: "p".into() };
        let mut results = Results { servers: vec![name.clone(), name], ..Results::default() };
        let table = results.table("t", &[Cell::new("a")]);
        let metric = Metric::higher("rate", "/s");
        for value in [1.0, 2.0] {
            results.add(table, 0, 0, &[Figure::new(metric, value)], None);
            results.add(table, 0, 1, &[Figure::new(metric, value * 10.0)], None);
        }
        let record = &results.tables[table].rows[0].records[0];
        assert_eq!(record.values, [vec![1.0, 2.0], vec![10.0, 20.0]]);
        assert_eq!(results.tables[table].metrics(), [metric]);
    }
}
