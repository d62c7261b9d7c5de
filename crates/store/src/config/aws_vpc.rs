//! The keys of the backend aws-vpc.

use serde::Deserialize;

use super::{error::Result, findings::Findings, gojson::Fields};

pub(super) const AWS_VPC_KEYS: &[&str] = &["RouteTableID"];

/// Each identifier of a route table starts with this.
const PREFIX: &str = "rtb-";

/// The settings of the backend aws-vpc.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AwsVpcConfig {
    /// The route tables that lead to the pods of this node; none for that of the node's own subnet
    /// of the VPC.
    pub route_tables: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    One(String),
    Several(Vec<String>),
}

/// Reads the keys. `None` only after a mistake.
pub(super) fn parse(fields: &Fields, findings: &mut Findings) -> Option<AwsVpcConfig> {
    let route_tables = findings.keep(parse_tables(fields));
    Some(AwsVpcConfig {
        route_tables: route_tables?,
    })
}

fn parse_tables(fields: &Fields) -> Result<Vec<String>> {
    let expected = "the identifier of a route table, \"rtb-...\", or an array of them";
    let mut tables = match fields.expect::<Written>("RouteTableID", expected)? {
        None => Vec::new(),
        Some(Written::One(table)) if table.is_empty() => Vec::new(),
        Some(Written::One(table)) => vec![table],
        Some(Written::Several(tables)) => tables,
    };
    tables.sort();
    tables.dedup();
    if tables.iter().all(|table| is_table(table)) {
        Ok(tables)
    } else {
        Err(fields.bad_value("RouteTableID", expected))
    }
}

fn is_table(text: &str) -> bool {
    let number = text.strip_prefix(PREFIX).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::super::{BackendConfig, NetworkConfig};

    fn parse(more: &str, family: &str) -> Result<Vec<String>, String> {
        let text =
            format!(r#"{{"Network":"10.5.0.0/16",{family}"Backend":{{"Type":"AWS-VPC"{more}}}}}"#);
        let config = NetworkConfig::parse(&text).map_err(|error| error.to_string())?;
        assert_eq!(config.warnings, []);
        let BackendConfig::AwsVpc(config) = config.backend else {
            panic!("another backend")
        };
        Ok(config.route_tables)
    }

    #[test]
    fn route_tables_are_none_one_or_several() {
        for (more, tables) in [
            ("", &[][..]),
            (r#","RouteTableID":"""#, &[]),
            (r#","RouteTableID":[]"#, &[]),
            (r#","routetableid":"rtb-0a1""#, &["rtb-0a1"]),
            (
                r#","RouteTableID":["rtb-2","rtb-1","rtb-2"]"#,
                &["rtb-1", "rtb-2"],
            ),
        ] {
            assert_eq!(parse(more, "").expect(more), tables, "{more}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (more, value) in [
            (r#","RouteTableID":7"#, "7"),
            (r#","RouteTableID":"vpc-1""#, "\"vpc-1\""),
            (
                r#","RouteTableID":["rtb-1","rtb-1&Action=x"]"#,
                "[\"rtb-1\",\"rtb-1&Action=x\"]",
            ),
        ] {
            let error = parse(more, "").expect_err(more);
            assert!(
                error.contains(&format!(
                    "RouteTableID in the network configuration is {value}, expected the"
                )),
                "{error}"
            );
        }
        let error = parse("", r#""EnableIPv6":true,"IPv6Network":"fd00::/48","#).expect_err("IPv6");
        assert!(
            error.contains("Backend.Type aws-vpc carries IPv4 alone; set EnableIPv6 to false"),
            "{error}"
        );
    }
}
