use proptest::prelude::*;

use super::*;

const V4: &str = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\n";
const V6: &str = "FLANNEL_IPV6_NETWORK=fc00::/48\nFLANNEL_IPV6_SUBNET=fc00::1/64\n";
const TAIL: &str = "FLANNEL_MTU=1472\nFLANNEL_IPMASQ=true\n";

fn nets<P: FromStr>(texts: &[&str]) -> Vec<P> {
    texts
        .iter()
        .map(|text| text.parse().ok().expect("a network"))
        .collect()
}

fn refusal(text: &str) -> String {
    SubnetFile::parse(text).expect_err(text).to_string()
}

#[test]
fn one_family_is_enough_and_both_are_fine() {
    let none = || Networks {
        networks: Vec::new(),
        subnet: None,
    };
    let v4 = Networks {
        networks: nets(&["10.1.0.0/16"]),
        subnet: nets(&["10.1.17.1/24"]).pop(),
    };
    let v6 = Networks {
        networks: nets(&["fc00::/48"]),
        subnet: nets(&["fc00::1/64"]).pop(),
    };
    for (text, v4, v6) in [
        (
            format!("{V4}{TAIL}"),
            v4.clone(),
            Networks {
                networks: Vec::new(),
                subnet: None,
            },
        ),
        (format!("{V6}{TAIL}"), none(), v6.clone()),
        (format!("{V4}{V6}{TAIL}"), v4, v6),
    ] {
        assert_eq!(
            SubnetFile::parse(&text),
            Ok(SubnetFile {
                v4,
                v6,
                mtu: 1472,
                ip_masq: true
            }),
            "{text}"
        );
    }
}

#[test]
fn lists_keep_their_order_and_lose_what_is_double() {
    let text = format!(
        "FLANNEL_NETWORK=10.2.0.0/16,10.1.0.0/16, 10.2.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\n{TAIL}"
    );
    let file = SubnetFile::parse(&text).expect("a good file");
    assert_eq!(file.v4.networks, nets(&["10.2.0.0/16", "10.1.0.0/16"]));
}

#[test]
fn only_the_word_true_means_true() {
    for (word, expected) in [
        ("true", true),
        ("True", false),
        ("1", false),
        ("yes", false),
        ("false", false),
    ] {
        let text = format!("{V4}FLANNEL_MTU=1\nFLANNEL_IPMASQ={word}\n");
        assert_eq!(
            SubnetFile::parse(&text).expect("a good file").ip_masq,
            expected,
            "{word}"
        );
    }
}

#[test]
fn what_is_missing_is_listed_together() {
    for (text, expected) in [
        (
            "",
            "FLANNEL_NETWORK, FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET, FLANNEL_IPV6_SUBNET, \
             FLANNEL_MTU, FLANNEL_IPMASQ",
        ),
        (
            TAIL,
            "FLANNEL_NETWORK, FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET, FLANNEL_IPV6_SUBNET",
        ),
        (V4, "FLANNEL_MTU, FLANNEL_IPMASQ"),
        (
            "FLANNEL_IPV6_NETWORK=fc00::/48\nFLANNEL_IPMASQ=no",
            "FLANNEL_SUBNET, FLANNEL_IPV6_SUBNET, FLANNEL_MTU",
        ),
        (
            "FOREIGN=1\n# FLANNEL_MTU=1\n\nword",
            NAMES.join(", ").as_str(),
        ),
    ] {
        assert_eq!(refusal(text), format!("is missing {expected}"), "{text}");
    }
}

#[test]
fn a_malformed_line_is_named() {
    for (line, expected) in [
        ("FLANNEL_MTU", "has FLANNEL_MTU without a value in line 5"),
        (
            "FLANNEL_SUBNET=",
            "has FLANNEL_SUBNET without a value in line 5",
        ),
        (
            "export FLANNEL_IPMASQ=''",
            "has FLANNEL_IPMASQ without a value in line 5",
        ),
        (
            "FLANNEL_MTU=-1",
            r#"has FLANNEL_MTU="-1" in line 5, which is not a number of bytes"#,
        ),
        (
            "FLANNEL_MTU=4294967296",
            r#"has FLANNEL_MTU="4294967296" in line 5, which is not a number of bytes"#,
        ),
        (
            "FLANNEL_NETWORK=10.0.0.0/8,",
            r#"has FLANNEL_NETWORK="" in line 5, which is not a CIDR of its family"#,
        ),
        (
            "FLANNEL_SUBNET=fc00::1/64",
            r#"has FLANNEL_SUBNET="fc00::1/64" in line 5, which is not a CIDR of its family"#,
        ),
        (
            "FLANNEL_SUBNET=10.1.1.1/24,10.1.2.1/24",
            r#"has FLANNEL_SUBNET="10.1.1.1/24,10.1.2.1/24" in line 5, which is not a CIDR of its family"#,
        ),
    ] {
        assert_eq!(refusal(&format!("{V4}{TAIL}{line}\n")), expected, "{line}");
    }
}

#[test]
fn one_value_is_found_whatever_else_is_there() {
    for (text, expected) in [
        ("A=1", Some("1")),
        ("# a comment\nexport A=\"1\" # why\n", Some("1")),
        ("A = '1'", Some("1")),
        ("A=1 # mine", Some("1")),
        ("A=1\nA=2", Some("2")),
        ("B=1\nA", None),
        ("#A=1", None),
    ] {
        assert_eq!(value_of(text, "A"), expected, "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(?s).{0,200}") {
        let _ = SubnetFile::parse(&text);
    }

    #[test]
    fn no_mixture_of_its_own_words_makes_it_panic(
        lines in prop::collection::vec((prop::sample::select(NAMES.to_vec()), "=?[\"']?[0-9a-f.:/, \
            ]{0,20}[\"']?\n"), 0..8),
    ) {
        let words: Vec<&str> = lines
            .iter()
            .flat_map(|(name, rest)| [*name, rest.as_str()])
            .collect();
        if let Ok(file) = SubnetFile::parse(&words.concat()) {
            prop_assert!(file.v4.subnet.is_some() || file.v6.subnet.is_some());
        }
    }
}
