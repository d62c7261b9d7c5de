//! Rules of any bytes: each is read as one of kube-proxy, and none ends the agent.

use flannel_netfilter::{Attributes, Expression};

use super::rule::ServiceRule;
use crate::nft::fuzz::seeds;

#[test]
fn fuzz_service_rules() {
    let seeds = seeds();
    let seeds: Vec<&[u8]> = seeds.iter().map(|seed| &seed[1..]).collect();
    flannel_fuzz::run("service_rules", &seeds, |rule| {
        let expressions: Vec<Expression<'_>> =
            Attributes::new(rule).list(4).map(Expression::new).collect();
        ServiceRule::of_expressions(&expressions);
    });
}
