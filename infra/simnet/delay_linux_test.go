package simnet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// rtt puts the service and those who pay a round trip away from the internet.
// Without -shell it is for TestDelay alone.
var rtt = flag.Duration("rtt", 0, "the round trip between the service and the internet, for -shell and TestDelay")

// The addresses of the far side as the internet sees them.
const (
	farAddr  = "203.0.113.2"
	farAddr6 = "2001:db8::2"
)

// The two ends of the way between the namespaces.
const (
	farEnd  = "far0"
	nearEnd = "near0"
)

// farRoutes and nearRoutes lead everything over the way. In the internet's
// namespace every address is local, so what is not must stand in the same
// table.
const (
	farRoutes = `link set lo up
addr add ` + farAddr + `/32 dev ` + farEnd + `
addr add ` + farAddr6 + `/128 dev ` + farEnd + ` nodad
link set ` + farEnd + ` up
route add 0.0.0.0/0 dev ` + farEnd + `
route add ::/0 dev ` + farEnd + `
route add unreachable 199.232.0.0/16
`
	nearRoutes = `link set ` + nearEnd + ` up
route add ` + farAddr + `/32 dev ` + nearEnd + ` table local
route add ` + farAddr6 + `/128 dev ` + nearEnd + ` table local
`
)

// far is a network namespace a round trip away from the one that the test
// process is in. What is opened through it is opened there. A nil far is no
// delay: everything is in one namespace.
type far struct {
	jobs chan func()
	out  *line // to the internet
	home *line // from it
}

// newFar makes the namespace and the way to it; both end with the test.
func newFar(t *testing.T, rtt time.Duration) *far {
	t.Helper()
	f := &far{jobs: make(chan func())}
	entered := make(chan error)
	go f.stay(entered)
	if err := <-entered; err != nil {
		t.Fatalf("a second network namespace: %v", err)
	}
	t.Cleanup(func() { close(f.jobs) })
	var there *os.File
	var err error
	f.do(func() {
		if there, err = openTun(farEnd); err == nil {
			err = testbed.IP(farRoutes)
		}
	})
	if err != nil {
		t.Fatalf("the far end: %v", err)
	}
	here, err := openTun(nearEnd)
	if err == nil {
		err = testbed.IP(nearRoutes)
	}
	if err != nil {
		t.Fatalf("the near end: %v", err)
	}
	f.out, f.home = newLine(there, here, rtt/2), newLine(here, there, rtt/2)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.out.carry()
	}()
	go f.home.carry()
	t.Cleanup(func() {
		there.Close()
		here.Close()
		<-ended
		if n := f.out.lost.Load() + f.home.lost.Load(); n > 0 {
			t.Errorf("%d packets found the queue full", n)
		}
	})
	return f
}

// stay moves its thread into a new namespace and works there. The thread is
// never given back, so it ends with the goroutine.
func (f *far) stay(entered chan<- error) {
	runtime.LockOSThread()
	entered <- syscall.Unshare(syscall.CLONE_NEWNET)
	for job := range f.jobs {
		job()
	}
}

// do runs a job in the namespace. Sockets that it opens and processes that it
// starts are there; the job must not end the test.
func (f *far) do(job func()) {
	if f == nil {
		job()
		return
	}
	done := make(chan struct{})
	f.jobs <- func() {
		defer close(done)
		job()
	}
	<-done
}

// start starts a command there.
func (f *far) start(cmd *exec.Cmd) (err error) {
	f.do(func() { err = cmd.Start() })
	return err
}

// dial connects from there to a literal address.
func (f *far) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	f.do(func() { conn, err = new(net.Dialer).DialContext(ctx, network, address) })
	return conn, err
}

// listen listens there on a port of 127.0.0.1.
func (f *far) listen(ctx context.Context) (l net.Listener, err error) {
	f.do(func() { l, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0") })
	return l, err
}

// openTun makes a TUN device in the namespace of the calling thread; it is
// gone when the file is closed. Each read takes one IP packet that was sent to
// the device, and each write is one that arrives from it.
func openTun(name string) (*os.File, error) {
	fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "/dev/net/tun", Err: err}
	}
	var request struct { // struct ifreq
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:], name)
	request.flags = syscall.IFF_TUN | syscall.IFF_NO_PI
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TUNSETIFF, uintptr(unsafe.Pointer(&request))); errno != 0 {
		syscall.Close(fd)
		return nil, &fs.PathError{Op: "TUNSETIFF", Path: "/dev/net/tun", Err: errno}
	}
	return os.NewFile(uintptr(fd), "tun "+name), nil
}

// noTun says why this machine has no TUN devices for us, or nil.
func noTun() error {
	f, err := openTun("probe0")
	if err == nil {
		f.Close()
		return nil
	}
	for _, absent := range []error{syscall.ENOENT, syscall.ENODEV, syscall.ENXIO, syscall.EPERM, syscall.EACCES} {
		if errors.Is(err, absent) {
			return fmt.Errorf("this machine does not permit TUN devices: %w", err)
		}
	}
	return nil // whatever it is, it fails the test
}
