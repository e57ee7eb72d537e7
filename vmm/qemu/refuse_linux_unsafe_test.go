//go:build linux && amd64

package qemu

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const refusingEnv = "FLASH_TEST_REFUSES_USERFAULTFD"

// A container's seccomp profile, or an unprivileged user, has no userfaultfd. This runs the test again in a process that the
// kernel refuses it to, and in the QEMUs that it starts.
func TestWithoutUserfaultfdMachinesAreRestoredWhole(t *testing.T) {
	if os.Getenv(refusingEnv) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), refusingEnv+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		} else if strings.Contains(string(out), "--- SKIP") {
			t.Skipf("%s", out)
		}
		t.Logf("%s", out)
		return
	}
	if err := refuseSystemCall(unix.SYS_USERFAULTFD); err != nil {
		t.Skip("seccomp: ", err)
	}
	e := testEngine(t, Config{PoolSize: -1})
	caps, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("tracker %s, %v", caps.Tracker, caps.Reasons)
	if caps.LazyPager || caps.Shared || caps.Tracker == "pagemap-scan" || !strings.Contains(caps.Reasons["lazy memory"], "not permitted") {
		t.Fatalf("%+v", caps)
	}
	savedAndRestored(t, e)
}

// refuseSystemCall makes a system call fail with EPERM in all threads of this process and in what it starts, for good.
func refuseSystemCall(number uint32) error {
	const load, equal, give = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: load, K: 0}, // struct seccomp_data: the number is the first word
		{Code: equal, K: number, Jf: 1},
		{Code: give, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: give, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// SAFETY: program and filter are alive over the call.
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return errno
	}
	if thread != 0 {
		return unix.EBUSY // that thread has other filters
	}
	return nil
}
