//! The sandbox that a worker process enters before it runs user code: limits, and on Linux denial of the file system
//! and the network (landlock) and of almost all system calls (seccomp). If the kernel rejects a layer, as containers
//! often do, the others are still active and [`enter`] reports the missing one.
#![expect(unsafe_code, reason = "system calls")]

pub(super) fn enter() -> Vec<String> {
    let mut missing = Vec::new();
    // The order matters, because each layer needs rights that the next one removes: rules need a descriptor, limits a
    // system call.
    #[cfg(target_os = "linux")]
    linux::deny_files(&mut missing);
    limit_process(&mut missing);
    #[cfg(target_os = "linux")]
    linux::filter_calls(&mut missing);
    #[cfg(not(target_os = "linux"))]
    missing.push("no system call filter on this operating system".to_owned());
    missing
}

fn limit_process(missing: &mut Vec<String>) {
    // Open files stay open; none can be opened or written to.
    for (resource, name) in [
        (libc::RLIMIT_NOFILE, "files"),
        (libc::RLIMIT_FSIZE, "file sizes"),
        (libc::RLIMIT_CORE, "cores"),
        (libc::RLIMIT_NPROC, "processes"),
    ] {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a valid resource and structure.
        if unsafe { libc::setrlimit(resource, &raw const none) } != 0 {
            missing.push(format!("the limit on {name}: {}", std::io::Error::last_os_error()));
        }
    }
}

/// Attempts operations that the sandbox must forbid. Returns each with its error, or `None` if it succeeded.
pub(super) fn self_test() -> Vec<(&'static str, Option<i32>)> {
    #[cfg(target_os = "linux")]
    return linux::self_test();
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;

    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
        RulesetCreatedAttr as _, RulesetStatus, Scope,
    };
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    };

    pub(super) fn deny_files(missing: &mut Vec<String>) {
        // SAFETY: prctl with integer arguments; TZ is read once, before files are out of reach.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
            tzset();
        }
        match landlock() {
            Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced) => {}
            Ok(RulesetStatus::NotEnforced) => missing.push("landlock: not in this kernel".to_owned()),
            Err(error) => missing.push(format!("landlock: {error}")),
        }
    }

    pub(super) fn filter_calls(missing: &mut Vec<String>) {
        if let Err(error) = seccomp() {
            missing.push(format!("seccomp: {error}"));
        }
    }

    unsafe extern "C" {
        fn tzset();
    }

    fn landlock() -> Result<RulesetStatus, landlock::RulesetError> {
        // No rule is added, so all handled operations are denied.
        let status = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(ABI::V6))?
            .handle_access(AccessNet::from_all(ABI::V6))?
            .scope(Scope::from_all(ABI::V6))?
            .create()?
            .no_new_privs(true)
            .restrict_self()?;
        Ok(status.ruleset)
    }

    type Rules = BTreeMap<i64, Vec<SeccompRule>>;

    fn seccomp() -> Result<(), Box<dyn std::error::Error>> {
        let mut rules = Rules::new();
        for call in [
            libc::SYS_munmap,
            libc::SYS_mremap,
            libc::SYS_brk,
            libc::SYS_madvise,
            libc::SYS_futex,
            libc::SYS_exit,
            libc::SYS_exit_group,
            libc::SYS_rt_sigreturn,
            libc::SYS_rt_sigprocmask,
            libc::SYS_rt_sigaction,
            libc::SYS_sigaltstack,
            libc::SYS_restart_syscall,
            libc::SYS_clock_gettime,
            libc::SYS_gettimeofday,
            libc::SYS_getrandom,
            libc::SYS_getpid,
            libc::SYS_gettid,
            libc::SYS_close,
        ] {
            rules.insert(call, Vec::new());
        }
        // The control socket is descriptor 0; panics are reported on 2.
        for (call, descriptors) in [
            (libc::SYS_read, &[0][..]),
            (libc::SYS_recvfrom, &[0]),
            (libc::SYS_write, &[0, 2]),
            (libc::SYS_sendto, &[0]),
        ] {
            let rule = |fd: &u64| SeccompRule::new(vec![argument(0, SeccompCmpOp::Eq, *fd)?]);
            rules.insert(call, descriptors.iter().map(rule).collect::<Result<_, _>>()?);
        }
        // Memory must never be executable.
        let executable = libc::PROT_EXEC.cast_unsigned().into();
        for call in [libc::SYS_mmap, libc::SYS_mprotect] {
            let data_only = argument(2, SeccompCmpOp::MaskedEq(executable), 0)?;
            rules.insert(call, vec![SeccompRule::new(vec![data_only])?]);
        }
        // abort() signals its own process.
        let own = u64::from(std::process::id());
        rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![argument(0, SeccompCmpOp::Eq, own)?])?]);

        let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
        let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, std::env::consts::ARCH.try_into()?)?;
        let program: BpfProgram = filter.try_into()?;
        seccompiler::apply_filter(&program)?;
        Ok(())
    }

    fn argument(index: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)
    }

    pub(super) fn self_test() -> Vec<(&'static str, Option<i32>)> {
        // SAFETY: each call gets valid arguments, and what it might open or make is not used; a forked child ends at
        // once.
        unsafe {
            let mut results = Vec::new();
            let mut attempt = |name, result: i64| {
                let error = std::io::Error::last_os_error().raw_os_error();
                results.push((name, if result < 0 { error } else { None }));
            };
            let (read, create) = (libc::O_RDONLY, libc::O_CREAT | libc::O_WRONLY);
            attempt("open a file", libc::open(c"/etc/passwd".as_ptr(), read).into());
            attempt("open a directory", libc::open(c"/".as_ptr(), read | libc::O_DIRECTORY).into());
            attempt("create a file", libc::open(c"/dev/shm/settee-js-escape".as_ptr(), create, 0o600).into());
            attempt("connect to the network", libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0).into());
            attempt("open a local socket", libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).into());
            let child = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0);
            if child == 0 {
                libc::_exit(0);
            }
            attempt("start a process", child);
            attempt("signal the server", libc::kill(libc::getppid(), 0).into());
            attempt("trace the server", libc::ptrace(libc::PTRACE_ATTACH, libc::getppid(), 0, 0));
            attempt("shrink the shared memory", libc::ftruncate(1, 0).into());
            let bytes = 4096;
            let code = libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            attempt("map code", if code == libc::MAP_FAILED { -1 } else { 0 });
            let free = libc::rlimit { rlim_cur: 100, rlim_max: 100 };
            attempt("raise a limit", libc::setrlimit(libc::RLIMIT_NOFILE, &raw const free).into());
            results
        }
    }
}
