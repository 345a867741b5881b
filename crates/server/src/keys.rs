//! Source of the keys of identity providers: [`reader`] reads files itself and fetches all other addresses.

use std::io::{Error, Read};
use std::sync::Arc;

use settee_api::{KeyFetcher, KeyReader};

const LENGTH_MAX_BYTES: usize = 1 << 20;

pub(crate) fn reader() -> anyhow::Result<KeyReader> {
    let fetcher = KeyFetcher::new().map_err(anyhow::Error::msg)?;
    Ok(Arc::new(move |address| {
        let fetcher = fetcher.clone();
        Box::pin(async move {
            if address.starts_with("http:") || address.starts_with("https:") {
                return fetcher.fetch(&address).await.map_err(|error| error.to_string());
            }
            let read = tokio::task::spawn_blocking(move || read_file(&address)).await;
            read.unwrap_or_else(|panic| Err(panic.into())).map_err(|error| error.to_string())
        })
    }))
}

fn read_file(path: &str) -> Result<Vec<u8>, Error> {
    let path = path.strip_prefix("file://").unwrap_or(path);
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(LENGTH_MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > LENGTH_MAX_BYTES {
        return Err(Error::other("the file is too long"));
    }
    Ok(bytes)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn from_files() {
        let read = reader().unwrap();
        let path = std::env::temp_dir().join(format!("settee-keys-{}", std::process::id()));
        std::fs::write(&path, "{}").unwrap();
        let name = path.to_str().unwrap().to_owned();
        assert_eq!(read(name.clone()).await, Ok(b"{}".to_vec()));
        assert_eq!(read(format!("file://{name}")).await, Ok(b"{}".to_vec()));
        std::fs::write(&path, vec![b' '; LENGTH_MAX_BYTES + 1]).unwrap();
        assert_eq!(read(name.clone()).await, Err("the file is too long".to_owned()));
        std::fs::remove_file(&path).unwrap();
        assert!(read(name).await.is_err());
    }
}
