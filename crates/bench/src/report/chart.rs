//! Bar and line charts as inline SVG ([`bars`], [`lines`]). Colours are classes of the page's style sheet.

use super::number;
use crate::statistics::Spread;
use std::fmt::Write;

pub(crate) const COLOURS: usize = 4;
const WIDTH: f64 = 900.0;

pub(crate) struct Group {
    pub(crate) label: String,
    pub(crate) bars: Vec<Option<Bar>>,
}

pub(crate) struct Bar {
    pub(crate) spread: Spread,
    pub(crate) note: String,
}

pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy)]
pub(crate) struct Axes<'a> {
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    Linear,
    Logarithmic,
}

pub(crate) fn bars(out: &mut String, groups: &[Group], unit: &str) {
    const BAR: f64 = 16.0;
    const GAP: f64 = 8.0;
    let all = || groups.iter().flat_map(|group| group.bars.iter().flatten());
    let greatest = all().map(|bar| bar.spread.greatest).filter(|value| value.is_finite()).fold(0.0, f64::max);
    let height: f64 = groups.iter().map(|group| group.bars.len() as f64 * BAR + GAP).sum();
    let whole = height + AXIS;
    push(out, format_args!("<svg viewBox=\"0 0 {WIDTH} {whole:.0}\" role=\"img\">"));
    let (foot, unit) = (height + AXIS - 4.0, escape(unit));
    push(out, format_args!("<text class=\"soft\" x=\"300\" y=\"{foot:.1}\">{unit}</text>"));
    let mut top = GAP / 2.0;
    for group in groups {
        let middle = top + group.bars.len() as f64 * BAR / 2.0 + 4.0;
        push(
            out,
            format_args!("<text x=\"292\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>", escape(&group.label)),
        );
        for (place, bar) in group.bars.iter().enumerate() {
            if let Some(bar) = bar {
                draw_bar(out, bar, place, top + place as f64 * BAR, greatest);
            }
        }
        top += group.bars.len() as f64 * BAR + GAP;
    }
    push(out, format_args!("</svg>\n"));
}

fn draw_bar(out: &mut String, bar: &Bar, place: usize, y: f64, greatest: f64) {
    const LEFT: f64 = 300.0;
    const NOTE: f64 = 110.0;
    let length = |value: f64| {
        if greatest > 0.0 { value / greatest * (WIDTH - LEFT - NOTE) } else { 0.0 }
    };
    let Spread { least, median, greatest } = bar.spread;
    let (colour, width) = (place % COLOURS, length(median));
    push(out, format_args!("<rect class=\"f{colour}\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"14\"/>"));
    let (from, to) = (LEFT + length(least), LEFT + length(greatest));
    if least < greatest {
        let y = y + 7.0;
        push(
            out,
            format_args!("<line class=\"whisker\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"),
        );
    }
    let (x, y) = (to + 5.0, y + 12.0);
    push(out, format_args!("<text class=\"soft\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(&bar.note)));
}

pub(crate) fn lines(out: &mut String, lines: &[Line], scale: Scale, axes: Axes<'_>) {
    let Some(frame) = Frame::around(lines, scale) else {
        return;
    };
    let height = HEIGHT + AXIS + 20.0 * lines.len() as f64;
    push(out, format_args!("<svg viewBox=\"0 -{AXIS} {WIDTH} {height:.0}\" role=\"img\">"));
    frame.draw_axes(out, lines);
    let (x, y) = (escape(axes.x), escape(axes.y));
    push(out, format_args!("<text class=\"soft\" x=\"0\" y=\"-4\">{y}</text>"));
    let (right, foot) = (WIDTH - RIGHT, HEIGHT + 6.0);
    push(out, format_args!("<text class=\"soft\" x=\"{right}\" y=\"{foot}\" text-anchor=\"end\">{x}</text>"));
    for (place, line) in lines.iter().enumerate() {
        let colour = place % COLOURS;
        let finite = line.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
        let points: Vec<(f64, f64)> = finite.map(|(x, y)| (frame.x(*x), frame.y(*y))).collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        push(out, format_args!("<polyline class=\"l{colour}\" points=\"{}\"/>", path.join(" ")));
        for (x, y) in &points {
            push(out, format_args!("<circle class=\"f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>"));
        }
        let (y, foot) = (HEIGHT + 20.0 * place as f64, HEIGHT + 20.0 * place as f64 + 11.0);
        push(out, format_args!("<rect class=\"f{colour}\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"12\" height=\"12\"/>"));
        push(out, format_args!("<text x=\"{}\" y=\"{foot:.1}\">{}</text>", LEFT + 18.0, escape(&line.name)));
    }
    push(out, format_args!("</svg>\n"));
}

const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const HEIGHT: f64 = 260.0;
const FOOT: f64 = 30.0;
const AXIS: f64 = 18.0;

struct Frame {
    scale: Scale,
    first: f64,
    width: f64,
    top: f64,
}

impl Frame {
    fn around(lines: &[Line], scale: Scale) -> Option<Frame> {
        let points = || lines.iter().flat_map(|line| &line.points).filter(|(x, y)| x.is_finite() && y.is_finite());
        let xs = Spread::of(&points().map(|(x, _)| position(*x, scale)).collect::<Vec<_>>())?;
        let ys = Spread::of(&points().map(|(_, y)| *y).collect::<Vec<_>>())?;
        let width = (xs.greatest - xs.least).max(1e-9);
        Some(Frame { scale, first: xs.least, width, top: nice(ys.greatest) })
    }

    fn x(&self, x: f64) -> f64 {
        LEFT + (position(x, self.scale) - self.first) / self.width * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, y: f64) -> f64 {
        HEIGHT - FOOT - y / self.top * (HEIGHT - FOOT - 12.0)
    }

    fn draw_axes(&self, out: &mut String, lines: &[Line]) {
        for step in 0..=4 {
            let value = self.top * f64::from(step) / 4.0;
            let (y, right) = (self.y(value), WIDTH - RIGHT);
            push(out, format_args!("<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"));
            let (x, y, text) = (LEFT - 6.0, y + 4.0, number(value));
            push(out, format_args!("<text class=\"soft\" x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>"));
        }
        for value in ticks(lines, self.scale) {
            let (x, y, text) = (self.x(value), HEIGHT - 10.0, number(value));
            push(out, format_args!("<text class=\"soft\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>"));
        }
    }
}

fn position(x: f64, scale: Scale) -> f64 {
    match scale {
        Scale::Linear => x,
        Scale::Logarithmic => x.max(1e-9).ln(),
    }
}

fn ticks(lines: &[Line], scale: Scale) -> Vec<f64> {
    let mut xs: Vec<f64> = lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x)).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    match (scale, xs.first(), xs.last()) {
        (Scale::Linear, Some(first), Some(last)) => {
            (0..=4).map(|step| first + (last - first) * f64::from(step) / 4.0).collect()
        }
        _ => xs,
    }
}

/// The next 1, 2, 2.5 or 5 times a power of ten, at least `value`.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|step| step * power).find(|top| *top >= value).unwrap_or(value)
}

pub(crate) fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a string cannot fail");
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, top) in [(7.0, 10.0), (2.1, 2.5), (1_000.0, 1_000.0), (0.3, 0.5), (0.0, 1.0)] {
            assert!((nice(value) - top).abs() < 1e-9, "{value}: {}", nice(value));
        }
    }

    #[test]
    fn corners_of_a_chart() {
        let line = Line { name: "a".into(), points: vec![(1.0, 0.0), (100.0, 10.0), (f64::NAN, 5.0)] };
        for (scale, middle) in [(Scale::Linear, 50.5), (Scale::Logarithmic, 10.0)] {
            let frame = Frame::around(std::slice::from_ref(&line), scale).expect("there are points");
            assert!((frame.x(1.0) - LEFT).abs() < 1e-6 && (frame.x(100.0) - (WIDTH - RIGHT)).abs() < 1e-6);
            assert!((frame.x(middle) - f64::midpoint(LEFT, WIDTH - RIGHT)).abs() < 1e-6);
            assert!((frame.y(0.0) - (HEIGHT - FOOT)).abs() < 1e-6 && (frame.y(10.0) - 12.0).abs() < 1e-6);
        }
        assert!(Frame::around(&[], Scale::Linear).is_none());
    }
}
