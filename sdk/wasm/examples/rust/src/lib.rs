//! Scores by month: emits `[year, month]` and the score of each document, and sums.

use settee_guest::{Value, emit, map_function, reduce_function};

fn by_month(document: Value<'_>) {
    let created = document.get("metadata").and_then(|metadata| metadata.get("createdAt")?.as_plain_str());
    let (Some(created), Some(score)) = (created, document.get("score")) else { return };
    let (Some(year), Some(month)) = (created.get(0..4), created.get(5..7)) else { return };
    emit(&format!("[{year},{}]", month.trim_start_matches('0')), score.text());
}

fn sum(_: Option<Value<'_>>, values: Value<'_>) -> String {
    values.elements().filter_map(Value::as_f64).sum::<f64>().to_string()
}

map_function!(by_month_map = by_month);
reduce_function!(sum_reduce = sum);
