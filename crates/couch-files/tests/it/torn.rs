//! A truncated file has the documents of its last complete header.

use std::collections::BTreeMap;

use settee_couch_files::{Database, FileError};

use crate::support::{documents, file, local_documents};

const POSITIONS: usize = 1000;

fn headers(file: &[u8]) -> Vec<(usize, usize)> {
    let marks = (0..file.len()).step_by(4096).filter(|block| file[*block] == 1);
    marks
        .map(|block| {
            let len = u32::from_be_bytes(file[block + 1..block + 5].try_into().unwrap()) as usize;
            assert!(len < 4000, "the test expects headers of one block");
            (block, block + 5 + len)
        })
        .collect()
}

type Documents = (BTreeMap<String, Vec<String>>, BTreeMap<String, String>);

fn contents(file: &[u8]) -> Documents {
    let database = Database::new(Box::new(file.to_vec())).unwrap();
    (documents(&database), local_documents(&database))
}

#[test]
fn a_torn_file_has_the_documents_of_its_last_header() {
    let whole = file("shards/80000000-ffffffff/fx_snappy.1795752226.couch");
    let headers = headers(&whole);
    assert!(headers.len() > 20, "{}", headers.len());
    let mut states: BTreeMap<usize, Documents> = BTreeMap::new();
    let (mut fallen_back, mut without, mut recovered) = (0, 0, 0);
    let mut cuts: Vec<usize> = (0..POSITIONS).map(|cut| whole.len() * cut / POSITIONS + cut % 7).collect();
    cuts.extend(headers.iter().flat_map(|(position, end)| [*position, position + 1, end - 1, *end, end + 1]));
    for cut in cuts {
        let torn = &whole[..cut.min(whole.len())];
        let last = headers.iter().rfind(|(_, end)| *end <= torn.len());
        let database = Database::new(Box::new(torn.to_vec()));
        let Some((position, end)) = last else {
            assert!(matches!(database, Err(FileError::NoHeader)), "{cut}");
            without += 1;
            continue;
        };
        let database = database.unwrap_or_else(|error| panic!("{cut}: {error}"));
        assert_eq!(database.header().position, *position as u64, "{cut}");
        assert_eq!(database.header().tail, (torn.len() - end) as u64, "{cut}");
        fallen_back += usize::from(torn.len() > *end);
        let state = states.entry(*end).or_insert_with(|| contents(&whole[..*end]));
        assert_eq!(documents(&database), state.0, "{cut}");
        assert_eq!(local_documents(&database), state.1, "{cut}");
        recovered += state.0.len();
    }
    assert!(fallen_back > POSITIONS / 2, "{fallen_back}");
    println!(
        "{} headers; {without} cuts before the first, {fallen_back} within uncommitted bytes; {recovered} documents, those of the last headers",
        headers.len()
    );
    let counts: Vec<usize> = states.values().map(|state| state.0.len()).collect();
    assert!(counts.windows(2).any(|pair| pair[0] < pair[1]), "the states differ: {counts:?}");
}

#[test]
fn bytes_after_the_last_header_are_not_part_of_the_database() {
    let whole = file("shards/00000000-7fffffff/fx_deflate.1795752228.couch");
    let state = contents(&whole);
    let header = Database::new(Box::new(whole.clone())).unwrap().header().clone();
    let marks: Vec<u8> = (0..9000).map(|at| u8::from(at % 4096 == 4096 - whole.len() % 4096)).collect();
    for tail in [vec![0; 5000], vec![1; 20_000], marks] {
        let torn = [whole.clone(), tail.clone()].concat();
        let database = Database::new(Box::new(torn.clone())).unwrap();
        assert_eq!(database.header().position, header.position);
        assert_eq!(database.header().tail, tail.len() as u64);
        assert_eq!(contents(&torn), state);
    }
}
