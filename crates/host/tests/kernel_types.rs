//! A separate process, because a refusal holds until its end.

use flannel_common::abi::kernel::KernelLayout;
use flannel_host::kernel_types;

#[test]
fn a_layout_whose_use_the_kernel_refused_is_unknown() {
    if kernel_types::is_readable() {
        assert_ne!(
            kernel_types::layout(),
            KernelLayout::UNKNOWN,
            "this kernel shows its types"
        );
    }
    kernel_types::refuse();
    assert_eq!(kernel_types::layout(), KernelLayout::UNKNOWN);
}
