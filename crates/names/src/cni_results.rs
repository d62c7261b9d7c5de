//! The pods of this node, from the results that the library of CNI keeps for the runtime.
//!
//! containerd and CRI-O use that library. Each file is a result with the arguments of its call
//! (`cachedInfo` in [libcni/api.go, CNI
//! 1.3.0](https://github.com/containernetworking/cni/blob/v1.3.0/libcni/api.go)), among them
//! namespace and name of the pod. The agent sees the directory only where it runs on the host.

use std::{fs, io::Read as _, net::IpAddr, path::Path};

use ipnet::IpNet;
use serde::Deserialize;

use super::cache::NameTable;

/// The directory of the library's default.
pub(super) const DIRECTORY: &str = "/var/lib/cni/results";
/// The most files that are read.
const FILES: usize = 2048;
/// The most bytes of a file that are read.
const FILE: u64 = 64 << 10;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CachedInfo {
    #[serde(default)]
    cni_args: Vec<[String; 2]>,
    #[serde(default)]
    result: CniResult,
}

#[derive(Default, Deserialize)]
struct CniResult {
    #[serde(default)]
    ips: Vec<CniAddress>,
}

#[derive(Deserialize)]
struct CniAddress {
    address: String,
}

/// The pods in a directory of results; none if the directory does not exist.
pub(super) fn read(directory: &Path) -> NameTable {
    let Ok(files) = fs::read_dir(directory) else {
        return NameTable::new();
    };
    files
        .flatten()
        .take(FILES)
        .filter_map(|file| content(&file.path()))
        .flat_map(|text| names(&text))
        .collect()
}

fn content(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let file = fs::File::open(path)
        .ok()
        .filter(|file| file.metadata().is_ok_and(|file| file.is_file()))?;
    file.take(FILE).read_to_end(&mut text).ok()?;
    Some(text)
}

/// The addresses in one file, each with the name of its pod.
fn names(text: &[u8]) -> Vec<(IpAddr, String)> {
    let Ok(CachedInfo { cni_args, result }) = serde_json::from_slice(text) else {
        return Vec::new();
    };
    let argument = |wanted: &str| {
        cni_args
            .iter()
            .find(|[key, _]| key == wanted)
            .map(|[_, value]| value.as_str())
    };
    let Some((namespace, name)) = argument("K8S_POD_NAMESPACE").zip(argument("K8S_POD_NAME"))
    else {
        return Vec::new();
    };
    let address =
        |CniAddress { address }: &CniAddress| address.parse::<IpNet>().ok().map(|net| net.addr());
    result
        .ips
        .iter()
        .filter_map(address)
        .map(|address| (address, format!("{namespace}/{name}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_names_the_addresses_of_its_pod() {
        let directory = tempfile::tempdir().expect("a directory");
        let result = r#"{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"cbr0","cniArgs":[
            ["IgnoreUnknown","1"],["K8S_POD_NAMESPACE","shop"],["K8S_POD_NAME","web-1"]],"result":{"cniVersion":
            "1.0.0","ips":[{"address":"10.244.1.5/24","interface":2},{"address":"fd00:10:244:1::5/64"}]}}"#;
        let without = result
            .replace("K8S_POD_NAME\"", "OTHER\"")
            .replace("10.244.1.5", "10.244.1.6");
        for (name, text) in [
            ("cbr0-c1-eth0", result),
            ("cbr0-c2-eth0", &without),
            ("garbage", "{"),
        ] {
            fs::write(directory.path().join(name), text).expect("a file");
        }
        let names = read(directory.path());
        let found: Vec<_> = names
            .iter()
            .map(|(address, name)| format!("{address} {name}"))
            .collect();
        assert_eq!(
            found,
            ["10.244.1.5 shop/web-1", "fd00:10:244:1::5 shop/web-1"]
        );
        assert!(read(&directory.path().join("absent")).is_empty());
    }
}
