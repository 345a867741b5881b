//! Test vectors generated with Python's `hashlib`.

use super::*;

struct Vector {
    password: &'static str,
    stored: &'static str,
}

const VECTORS: &[Vector] = &[
    Vector {
        password: "secret",
        stored: "-pbkdf2-16d51d2b6f231c926e6d5b5e8417a9cd6b95c73d,0123456789abcdef0123456789abcdef,10",
    },
    Vector {
        password: "secret",
        stored: "-pbkdf2:sha-16d51d2b6f231c926e6d5b5e8417a9cd6b95c73d,0123456789abcdef0123456789abcdef,10",
    },
    Vector {
        password: "secret",
        stored: "-pbkdf2:sha224-824f166de18df8909f278da8bb823edeebe50eefd70cb7deb860335a,0123456789abcdef0123456789abcdef,10",
    },
    Vector {
        password: "secret",
        stored: "-pbkdf2:sha256-e498654ca069754e63ef7b3e63085f3c13efb51c2412106985e8f1367a07f327,0123456789abcdef0123456789abcdef,10",
    },
    Vector {
        password: "secret",
        stored: "-pbkdf2:sha384-58b4eee0fbb7e4fa7fa0c52481a6054011e1900696d68b9206c69fbc82c38afd8b526280a5226c9b454df90b2b5d5de0,0123456789abcdef0123456789abcdef,10",
    },
    Vector {
        password: "secret",
        stored: "-pbkdf2:sha512-a433f7705ab96c28def35f44f72df358c078516b63663aa6cd42b4a397b715023c7db81c819bd97417511cc67b80f9c659421f8f3622e8344909ca714f48ca96,0123456789abcdef0123456789abcdef,10",
    },
    Vector {
        password: "secret",
        stored: "-hashed-28bb0461fdec074a04c19fae421fbb5c376999a3,0123456789abcdef0123456789abcdef",
    },
    Vector {
        password: "Zoë 😀",
        stored: "-pbkdf2-8f5e6b4bdd87f9a624d1568089fd97ad8cf27690,a1b2c3d4e5f60718293a4b5c6d7e8f90,1000",
    },
    Vector {
        password: "Zoë 😀",
        stored: "-pbkdf2:sha-8f5e6b4bdd87f9a624d1568089fd97ad8cf27690,a1b2c3d4e5f60718293a4b5c6d7e8f90,1000",
    },
    Vector {
        password: "Zoë 😀",
        stored: "-pbkdf2:sha224-e21bdc2d88ff10909243ef073a437067277d94871210d1f41910f264,a1b2c3d4e5f60718293a4b5c6d7e8f90,1000",
    },
    Vector {
        password: "Zoë 😀",
        stored: "-pbkdf2:sha256-cfe8bb387b1ce22b545d0f64789117990dc074d49ba62cb296d3432d8a7f1a14,a1b2c3d4e5f60718293a4b5c6d7e8f90,1000",
    },
    Vector {
        password: "Zoë 😀",
        stored: "-pbkdf2:sha384-f04c97968afeafa816a562f9a29fabfdee9819d1c48806910c8e4897fcfa696e2b418bfa6e662a5674c5fa708e218a47,a1b2c3d4e5f60718293a4b5c6d7e8f90,1000",
    },
    Vector {
        password: "Zoë 😀",
        stored: "-pbkdf2:sha512-1c8d9478d2b71c36d849185a6d412e0a72cad1d0a1ac624b7e65613e13ec92bb5de08ac64019d1e09e8fb968ed74001e3ea4ae95718dad636b6eccc4ca259c64,a1b2c3d4e5f60718293a4b5c6d7e8f90,1000",
    },
    Vector {
        password: "Zoë 😀",
        stored: "-hashed-90d0b650383127224e36e149c751fdf26241f189,a1b2c3d4e5f60718293a4b5c6d7e8f90",
    },
    Vector { password: "", stored: "-pbkdf2-a33dddc30478185515311f8752895d36ea4363a2,salt,1" },
    Vector { password: "", stored: "-pbkdf2:sha-a33dddc30478185515311f8752895d36ea4363a2,salt,1" },
    Vector { password: "", stored: "-pbkdf2:sha224-35cc2b821df141e4346ae61836ac2c25a653c02a799e3113c4f6769d,salt,1" },
    Vector {
        password: "",
        stored: "-pbkdf2:sha256-f135c27993baf98773c5cdb40a5706ce6a345cde61b000a67858650cd6a324d7,salt,1",
    },
    Vector {
        password: "",
        stored: "-pbkdf2:sha384-0f2e98f6834469c6dd38a3484e8eba4ddfa88b6440358024e1bf865ad155401a28f73a26ea1d00b85279ccfdaf831c07,salt,1",
    },
    Vector {
        password: "",
        stored: "-pbkdf2:sha512-00ef42cdbfc98d29db20976608e455567fdddf141f6eb03b5a85addd25974f5d2375bd5082b803e8f4cfa88ae1bd25256fcbddd2318676566ff2797792302aee,salt,1",
    },
    Vector { password: "", stored: "-hashed-b295d117135a9763da282e7dae73a5ca7d3e5b11,salt" },
    Vector { password: "secret", stored: "-hashed-9d72c1ec3e4b46e43bc6f83d985a5a99061aa3de,s,alt" },
];

#[test]
fn vectors() {
    for Vector { password, stored } in VECTORS {
        let hash = PasswordHash::parse(stored).unwrap();
        assert!(hash.verify(password.as_bytes()), "{stored}");
        assert!(is_hashed(stored), "{stored}");
        for wrong in [format!("{password} "), password.to_uppercase() + "x", String::from("wrong")] {
            assert!(!hash.verify(wrong.as_bytes()), "{stored} with {wrong}");
        }
    }
}

#[test]
fn hashing_gives_the_format_of_couchdb() {
    assert_eq!(
        hash_password("Zoë 😀", "a1b2c3d4e5f60718293a4b5c6d7e8f90", NonZeroU32::new(1000).unwrap()),
        "-pbkdf2:sha256-cfe8bb387b1ce22b545d0f64789117990dc074d49ba62cb296d3432d8a7f1a14,\
         a1b2c3d4e5f60718293a4b5c6d7e8f90,1000",
    );
}

#[test]
fn hex_digits_may_be_upper_case() {
    let stored = hash_password("x", "salt", NonZeroU32::MIN);
    let (head, tail) = stored.split_at("-pbkdf2:sha256-".len());
    let (hash, rest) = tail.split_at(64);
    let upper = format!("{head}{}{rest}", hash.to_uppercase());
    assert_ne!(upper, stored);
    assert!(PasswordHash::parse(&upper).unwrap().verify(b"x"));
}

#[test]
fn damaged_hashes_are_not_plain_text() {
    let hex40 = "a".repeat(40);
    let hex64 = "b".repeat(64);
    for damaged in [
        "-pbkdf2-".to_owned(),
        "-pbkdf2-,,".to_owned(),
        format!("-pbkdf2-{hex40}"),
        format!("-pbkdf2-{hex40},salt"),
        format!("-pbkdf2-{hex40},salt,0"),
        format!("-pbkdf2-{hex40},salt,-1"),
        format!("-pbkdf2-{hex40},salt,99999999999"),
        format!("-pbkdf2-{hex40},salt,10,10"),
        format!("-pbkdf2-{hex64},salt,10"),
        format!("-pbkdf2:sha256-{hex40},salt,10"),
        format!("-pbkdf2:sha256-{}g,salt,10", &hex64[1..]),
        "-hashed-".to_owned(),
        format!("-hashed-{hex40}"),
        format!("-hashed-{hex64},salt"),
    ] {
        assert_eq!(PasswordHash::parse(&damaged).err(), Some(HashError::Damaged), "{damaged}");
        assert!(is_hashed(&damaged), "{damaged}");
    }
}

#[test]
fn everything_else_is_plain_text() {
    for plain in
        ["", "secret", "-", "-hashed", "-pbkdf2", "-pbkdf2:md5-00,salt,1", "-pbkdf2:sha1-00,salt,1", " -hashed-x"]
    {
        assert_eq!(PasswordHash::parse(plain).err(), Some(HashError::Plain), "{plain}");
        assert!(!is_hashed(plain), "{plain}");
    }
}

#[test]
fn debug_output_shows_no_hash() {
    let text = format!("{:?}", PasswordHash::parse(VECTORS[0].stored).unwrap());
    assert!(text.contains("Sha1") && !text.contains("16d51d2b") && !text.contains("0123456789abcdef"), "{text}");
}
