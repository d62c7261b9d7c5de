//! The signature of the digests of a release: ECDSA with P-256 over SHA-256, in base64, as `cosign
//! sign-blob` makes it and `cosign verify-blob` and openssl verify it.

use std::{
    fs,
    path::{self, Path, PathBuf},
};

use anyhow::{Context as _, ensure};

use crate::{
    files,
    workspace::{self, Workspace},
};

/// Signs a file of the release with a private key in PEM form. Writes the signature and the public
/// key to the directory of the file. Returns the path of the signature.
pub(super) fn sign(workspace: &Workspace, key: &Path, file: &Path) -> anyhow::Result<PathBuf> {
    ensure!(
        workspace.find_command("openssl").is_some(),
        "--sign needs openssl, which is not in PATH: apt-get install openssl"
    );
    let key = &path::absolute(key).with_context(|| key.display().to_string())?;
    let openssl = || workspace.command("openssl");
    let public = workspace::output(openssl().args(["pkey", "-pubout", "-in"]).arg(key))
        .with_context(|| format!("{} is not a private key in PEM form", key.display()))?;
    files::write(&file.with_file_name("release.pub"), &public)?;
    let binary = file.with_extension("sig.bin");
    let mut sign = openssl();
    sign.args(["dgst", "-sha256", "-sign"])
        .arg(key)
        .arg("-out")
        .arg(&binary)
        .arg(file);
    workspace::run(&mut sign, "openssl")?;
    let text = workspace::output(openssl().args(["base64", "-A", "-in"]).arg(&binary))?;
    fs::remove_file(&binary).with_context(|| format!("cannot remove {}", binary.display()))?;
    let signature = file.with_extension("sig");
    files::write(&signature, &text)?;
    Ok(signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By a key that is made here, and by the commands of the page.
    #[test]
    fn a_signature_is_verified_and_that_of_another_file_is_not() {
        let workspace = Workspace::new().expect("the project");
        if workspace.find_command("openssl").is_none() {
            println!("NOT RUN: signatures: openssl is not in PATH");
            return;
        }
        let dir = std::env::temp_dir().join(format!("xtask-signature-{}", std::process::id()));
        let (key, file) = (dir.join("release.key"), dir.join("SHA256SUMS"));
        files::write(&file, "0  a file\n").expect("a file");
        let openssl = |arguments: &[&str]| {
            workspace
                .command("openssl")
                .args(arguments)
                .current_dir(&dir)
                .output()
        };
        let made = openssl(&[
            "ecparam",
            "-name",
            "prime256v1",
            "-genkey",
            "-noout",
            "-out",
            "release.key",
        ]);
        assert!(made.expect("openssl").status.success());
        let signature = sign(&workspace, &key, &file).expect("signed");
        assert_eq!(signature, dir.join("SHA256SUMS.sig"));
        let decode = ["base64", "-d", "-A", "-in", "SHA256SUMS.sig", "-out", "raw"];
        assert!(openssl(&decode).expect("openssl").status.success());
        let verify = [
            "dgst",
            "-sha256",
            "-verify",
            "release.pub",
            "-signature",
            "raw",
            "SHA256SUMS",
        ];
        assert!(openssl(&verify).expect("openssl").status.success());
        files::write(&file, "1  a file\n").expect("a file");
        assert!(!openssl(&verify).expect("openssl").status.success());
        let refused = sign(&workspace, &file, &file)
            .expect_err("not a key")
            .to_string();
        assert!(
            refused.contains("not a private key in PEM form"),
            "{refused}"
        );
        fs::remove_dir_all(&dir).expect("removed");
    }
}
