//! Tests of invalid cluster files and arguments: an error that says what to do, and exit code 1.

use crate::cluster::{folder, run};

#[test]
fn bad_cluster_files_are_refused() {
    let dir = folder();
    let path = dir.path().join("cluster.toml");
    let file = path.to_str().unwrap();
    let missing = run(&["chunk", "--store", "1", "--cluster", file]);
    let text = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        text.contains("cluster.toml") && missing.status.code() == Some(1),
        "{text}"
    );
    let head = "cluster = \"0d1c5c2e-9d3a-4f4b-8a64-0d6f2f0c7a11\"\n";
    let store = "[[store]]\nid = 1\ndir = \"s\"\naddress = \"127.0.0.1:0\"\n";
    for (rest, words) in [
        (
            "colour = 3\n".to_owned() + store,
            ["unknown field", "colour"],
        ),
        (store.repeat(2), ["store 1 is there twice", "own id"]),
        (
            format!("{store}[[group]]\nid = 1\nreplicas = []\n"),
            ["no stores", "replicas"],
        ),
        (
            format!("{store}[storage]\nlog = \"much\"\n"),
            ["\"much\" is no size", "10G"],
        ),
    ] {
        std::fs::write(&path, format!("{head}{rest}")).unwrap();
        let out = run(&["chunk", "--store", "1", "--cluster", file]);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{text}");
        assert!(words.iter().all(|w| text.contains(w)), "{words:?}: {text}");
    }
    std::fs::write(&path, format!("{head}{store}")).unwrap();
    for (args, word) in [
        (&["--store", "9"][..], "there is no store 9"),
        (&["--store", "1"], "--make"),
    ] {
        let out = run(&[&["chunk", "--cluster", file][..], args].concat());
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(
            text.contains(word) && out.status.code() == Some(1),
            "{text}"
        );
    }
    let open = store.replace("127.0.0.1:0", "0.0.0.0:0");
    std::fs::write(&path, format!("{head}{open}")).unwrap();
    let out = run(&["chunk", "--store", "1", "--cluster", file]);
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(text.contains("--insecure"), "{text}");
}

#[test]
fn help_says_how_to_begin() {
    let out = run(&["--help"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    for word in ["ironstone-block dev --dir", "chunk", "nbd", "ctl"] {
        assert!(text.contains(word), "{text}");
    }
}
