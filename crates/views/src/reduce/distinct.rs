//! `_approx_count_distinct`: approximate number of distinct keys by HyperLogLog with 2,048 registers, as in CouchDB
//! (standard error 2.3 %). The hash differs from CouchDB's, and so do estimates, within that error.

use settee_design::Growth;

use super::builtin::{Builtin, Input, OfRows};
use crate::leaf::Group;

pub(super) fn parse(source: &str, _: Growth) -> Option<Box<dyn Builtin>> {
    (source.starts_with("_approx_count_distinct")).then(|| Box::new(Distinct) as Box<dyn Builtin>)
}

/// The stored form is `(register, rank)` of the used registers, three bytes each, or all ranks if that is shorter.
struct Distinct;

const PRECISION: u32 = 11;
const REGISTERS: usize = 1 << PRECISION;

struct Registers([u8; REGISTERS]);

impl Registers {
    fn new() -> Self {
        Self([0; REGISTERS])
    }

    fn insert(&mut self, sort_key: &[u8]) {
        let hash = hash(sort_key);
        let register = usize::try_from(hash >> (64 - PRECISION)).expect("eleven bits");
        let rank = (hash << PRECISION | 1 << (PRECISION - 1)).leading_zeros() + 1;
        self.raise(register, u8::try_from(rank).expect("at most 54"));
    }

    fn raise(&mut self, register: usize, rank: u8) {
        self.0[register] = self.0[register].max(rank);
    }

    fn add(&mut self, stored: &[u8]) {
        if let Ok(ranks) = <&[u8; REGISTERS]>::try_from(stored) {
            ranks.iter().enumerate().for_each(|(register, &rank)| self.raise(register, rank));
        } else {
            for entry in stored.chunks_exact(3) {
                let register = usize::from(u16::from_be_bytes([entry[0], entry[1]])) % REGISTERS;
                self.raise(register, entry[2]);
            }
        }
    }

    fn store(&self, out: &mut Vec<u8>) {
        let used = self.0.iter().filter(|&&rank| rank > 0).count();
        if used * 3 >= REGISTERS {
            out.extend_from_slice(&self.0);
            return;
        }
        for (register, &rank) in self.0.iter().enumerate().filter(|&(_, &rank)| rank > 0) {
            out.extend_from_slice(&u16::try_from(register).expect("less than 2048").to_be_bytes());
            out.push(rank);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "2048 and less are exact")]
    fn estimate(&self) -> f64 {
        let count = REGISTERS as f64;
        let zeros = self.0.iter().filter(|&&rank| rank == 0).count() as f64;
        let bias = 0.7213 / (1.0 + 1.079 / count);
        let estimate = bias * count * count / self.0.iter().map(|&rank| (-f64::from(rank)).exp2()).sum::<f64>();
        // For few keys, the number of empty registers is a better estimate.
        if estimate <= 2.5 * count && zeros > 0.0 { count * (count / zeros).ln() } else { estimate }
    }
}

/// FNV-1a with the finalizer of SplitMix64, because FNV yields similar high bits for short keys.
fn hash(bytes: &[u8]) -> u64 {
    let fnv = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mixed = (fnv ^ fnv >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl OfRows for Distinct {
    fn reduce(&self, rows: &Group<'_>, out: &mut Vec<u8>) {
        let mut registers = Registers::new();
        rows.rows().for_each(|row| registers.insert(row.sort_key()));
        registers.store(out);
    }
}

impl Builtin for Distinct {
    fn input(&self) -> Input<'_> {
        Input::Rows(self)
    }

    fn rereduce(&self, partials: &[&[u8]], out: &mut Vec<u8>) {
        let mut registers = Registers::new();
        partials.iter().for_each(|partial| registers.add(partial));
        registers.store(out);
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a finite estimate, not negative")]
    fn finish(&self, partial: &[u8], out: &mut Vec<u8>) {
        let mut registers = Registers::new();
        registers.add(partial);
        settee_model::json::write_u64(out, registers.estimate().round() as u64);
    }
}
