//! What the layers say together.

use std::collections::HashMap;

use super::*;

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    folder
}

fn load(flags: Overrides, env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let env: HashMap<_, _> = env.iter().copied().collect();
    Config::load_with(flags, &|name| env.get(name).map(OsString::from))
}

#[test]
fn the_first_who_says_something_wins_key_by_key() {
    let folder = folder(&[
        ("one.toml", "namespace = 'one'\n[run]\nttl = '1m'\n"),
        (
            "leasehold/config.toml",
            "namespace = 'two'\nscope = 'host'\ntimeout = '2s'\n[run]\nttl = '2m'\nbusy = 'fail'\n",
        ),
    ]);
    let home = folder.path().to_str().unwrap();
    let one = folder.path().join("one.toml");
    let env = [("XDG_CONFIG_HOME", home), ("LEASEHOLD_CONFIG", one.to_str().unwrap())];
    let config = load(Overrides::default(), &env).unwrap();
    assert_eq!(config.namespace().value, "one");
    assert_eq!(config.scope().unwrap().value, Scope::Host);
    let lock = config.lock("x");
    assert_eq!(lock.ttl.unwrap().value, Duration::from_secs(60));
    let busy = lock.busy.unwrap();
    assert_eq!(busy.value, OnBusy::Fail);
    assert!(busy.origin.to_string().ends_with("leasehold/config.toml [run] busy"), "{}", busy.origin);

    let env = [("XDG_CONFIG_HOME", home), ("LEASEHOLD_NAMESPACE", "env"), ("LEASEHOLD_SCOPE", "")];
    let flags = Overrides { scope: Some(Scope::Fleet), ..Overrides::default() };
    let config = load(flags, &env).unwrap();
    assert_eq!(config.namespace().value, "env");
    assert_eq!(config.scope().unwrap(), Setting { value: Scope::Fleet, origin: Origin::Flag("--scope") });
    assert_eq!(
        config.store(None).unwrap_or_else(|error| panic!("{error}")).timeout.value,
        Duration::from_secs(2)
    );
}

#[test]
fn rules_go_by_name_and_the_later_wins() {
    let text = "[run]\nttl = '9s'\nnote = 'all'\n[[lock]]\nmatch = '*'\nttl = '3s'\n[[lock]]\nmatch = 'pay:*'\nttl = '5s'\nstore = 'money'\n[stores.money]\nurl = 'memory:'\n";
    let folder = folder(&[("leasehold/config.toml", text)]);
    let env = [("XDG_CONFIG_HOME", folder.path().to_str().unwrap()), ("HOME", "/nonexistent")];
    let config = load(Overrides::default(), &env).unwrap();
    assert_eq!(config.lock("pay:1").ttl.unwrap().value, Duration::from_secs(5));
    assert_eq!(config.lock("other").ttl.unwrap().value, Duration::from_secs(3));
    assert_eq!(config.lock("other").note.unwrap().value, "all");
    assert_eq!(config.defaults().ttl.unwrap().value, Duration::from_secs(9));
    assert_eq!(config.store(Some("pay:1")).unwrap().name.as_deref(), Some("money"));
    assert!(config.store(Some("other")).unwrap().is_default());
}

#[test]
fn a_store_is_a_url_or_a_name_and_its_password_is_put_in() {
    let secret = folder(&[("secret", "hun:ter/2\n")]);
    let path = secret.path().join("secret");
    let text =
        format!("[stores.main]\nurl = 'redis://me@h:1/0?prefix=a'\npassword_file = '{}'\n", path.display());
    let folder = folder(&[("leasehold/config.toml", &text)]);
    let env = [("XDG_CONFIG_HOME", folder.path().to_str().unwrap()), ("LEASEHOLD_STORE", "main")];
    let choice = load(Overrides::default(), &env).unwrap().store(None).unwrap();
    assert_eq!(choice.to_string(), "redis://me:***@h:1/0?prefix=a");
    assert_eq!(choice.url.password.as_ref().unwrap().expose(), "hun:ter/2");
    assert!(!format!("{choice} {choice:?}").contains("hun"));
    assert_eq!(choice.origin, Origin::Env("LEASEHOLD_STORE"));

    let flags = Overrides { store: Some("mian".to_owned()), ..Overrides::default() };
    let error = load(flags, &env).unwrap().store(None).unwrap_err();
    assert!(error.help.unwrap().contains("known: main"));
}

#[test]
fn sqlite_alone_means_the_default_file() {
    let env = [("HOME", "/home/a b"), ("LEASEHOLD_STORE", "sqlite:?group=locks")];
    let choice = load(Overrides::default(), &env).unwrap().store(None).unwrap();
    if rustix::process::geteuid().is_root() {
        assert_eq!(choice.to_string(), "sqlite:/var/lib/leasehold/leasehold.db?group=locks");
    } else {
        assert_eq!(choice.to_string(), "sqlite:/home/a b/.local/state/leasehold/leasehold.db?group=locks");
        assert!(load(Overrides::default(), &[]).unwrap().store(None).is_err());
    }
}

#[test]
fn what_cannot_be_used_names_itself() {
    let error = load(Overrides::default(), &[("LEASEHOLD_TIMEOUT", "5")]).unwrap_err();
    assert_eq!(error.message, "LEASEHOLD_TIMEOUT: five what? write 5s, 5m or 5h");
    let error = load(Overrides::default(), &[("LEASEHOLD_CONFIG", "/nonexistent.toml")]).unwrap_err();
    assert!(error.message.contains("/nonexistent.toml"), "{error}");
    let config = load(Overrides::default(), &[("LEASEHOLD_TIMEOUT", "0")]).unwrap();
    assert!(config.store(None).is_err());
    // Relative places would be read from the current directory.
    assert_eq!(
        load(Overrides::default(), &[("XDG_CONFIG_HOME", "."), ("HOME", "")]).unwrap().files().count(),
        0
    );
}
