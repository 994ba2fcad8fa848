package simnet

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/hostfacts/hostfacts/infra/clients"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // the tested programs contain this package; the import makes go test notice its changes
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestSimnet sends the paid requests in the tables to the local runner, and to the functions
// as they are deployed. It also sends requests in networks whose resolvers deny names. Every
// answer must be as its row says. Then the test checks that the answers covered the codes and
// the nullable fields, that packets were sent only to hosts that the service may connect to,
// and that the runner's memory is within its limits.
func TestSimnet(t *testing.T) {
	if err := testbed.NoNamespaces(); err != nil || testing.Short() {
		t.Skip("played in make verify: ", err)
	}
	n := newInternet(t)
	if *shell {
		openShell(t, n)
		return
	}
	provedAddrs := proveTap(t, n.tap)
	r := startRunner(t, n)
	seen := &observations{api: testbed.Must(clients.ParseOpenAPI(r.document(t, catalog.PathOpenAPI), r.document(t, catalog.PathDocs)))}
	play := func(t *testing.T, name string, s *runner, rows []row) {
		t.Run(name, func(t *testing.T) {
			for _, c := range rows {
				t.Run(c.String(), func(t *testing.T) {
					t.Parallel()
					seen.play(t, s, c)
				})
			}
		})
	}
	play(t, "table", r, tableRows())
	play(t, "addresses", r, specialRows())
	t.Run("beside each other", func(t *testing.T) {
		t.Run("deployed", func(t *testing.T) {
			t.Parallel()
			play(t, "table", deploy(t, n), tableRows())
		})
		t.Run("behind a portal", func(t *testing.T) {
			t.Parallel()
			play(t, "all denied", startRunner(t, n, "DNS_RESOLVERS="+strings.Join(portalAddrs(), ",")), deniedRows())
			play(t, "and beside it", startRunner(t, n, "DNS_RESOLVERS="+relayAddr+",1.1.1.1"), relayedRows())
		})
		t.Run("without a bootstrap", func(t *testing.T) {
			t.Parallel()
			nowhere := startRunner(t, n, "RDAP_BOOTSTRAP_URL=http://127.0.0.1:9/")
			seen.play(t, nowhere, rowMaker("whois")("example.com", wantError(lookup.BootstrapUnavailable)))
			seen.play(t, nowhere, rowMaker("host-intel")("example.com", wantResult(childError("whois", lookup.BootstrapUnavailable), `"expired":false`)))
		})
	})
	// Some checks below need the answers to all rows. So these checks are left out if a row
	// failed, or if -run selected only some rows.
	incomplete := t.Failed() || strings.Contains(flag.Lookup("test.run").Value.String(), "/")
	if !incomplete {
		t.Run("covers the spec", func(t *testing.T) { checkCoverage(t, seen) })
	}
	t.Run("nothing else was connected to", func(t *testing.T) { checkDestinations(t, n, provedAddrs, incomplete) })
	t.Run("nothing was left behind", func(t *testing.T) { checkMemory(t, r) })
}

// checkCoverage checks that the answers contained every code of every operation, every verdict
// of bundles, and every nullable field, both as null and with a value.
func checkCoverage(t *testing.T, seen *observations) {
	// No request can cause a bundle to time out, because the bundle's children time out half a
	// second earlier. The tests of pkg/service cover Overloaded.
	elsewhere := []fault.Code{lookup.HostIntelTimeout, lookup.UptimeCheckTimeout, fault.Overloaded}
	for _, op := range catalog.All() {
		if op.Kind == catalog.SmokeTest {
			continue
		}
		for _, code := range op.Errors {
			if !slices.Contains(elsewhere, code) {
				seen.requireNoted(t, op.Slug, " answered ", code)
			}
		}
		seen.checkNullable(t, op.Slug, op.Fields)
	}
	for _, v := range []bundle.Verdict{bundle.Up, bundle.Degraded, bundle.Down} {
		seen.requireNoted(t, `"verdict":"`, v, `"`)
	}
}

// requireNoted fails the test unless the fact was noted.
func (o *observations) requireNoted(t *testing.T, parts ...any) {
	t.Helper()
	if _, ok := o.facts.Load(fmt.Sprint(parts...)); !ok {
		t.Error("it was never seen that ", fmt.Sprint(parts...))
	}
}

// checkNullable checks that each nullable field was seen as null and with a value. It checks
// only the fields of the operation itself, not the fields of a bundle's children.
func (o *observations) checkNullable(t *testing.T, op string, fields []catalog.Field) {
	t.Helper()
	for _, f := range fields {
		// Rows cannot make tls_version and cipher null. The tests of package ssl cover servers
		// that choose a version or suite without a name.
		if f.Nullable {
			o.requireNoted(t, op, ".", f.Name, " null: ", false)
		}
		if f.Nullable && f.Name != "tls_version" && f.Name != "cipher" {
			o.requireNoted(t, op, ".", f.Name, " null: ", true)
		}
		o.checkNullable(t, op, f.Fields)
		for i := 0; f.Type == "array" && i < len(f.Items); i++ {
			o.checkNullable(t, op, f.Items[i].Fields)
		}
	}
}

// checkDestinations checks that packets were sent only to the hosts that the service may
// connect to, and to the servers of this test on 127.0.0.1.
func checkDestinations(t *testing.T, n *internet, provedAddrs []netip.AddrPort, incomplete bool) {
	if lost := n.tap.dropped(t); lost > 0 {
		t.Errorf("the tap missed %d packets", lost)
	}
	resolvers := map[netip.Addr]bool{}
	for _, a := range slices.Concat(resolverAddrs(), portalAddrs(), []string{relayAddr}) {
		resolvers[netip.MustParseAddr(a)] = true
	}
	ours := netip.MustParseAddr("127.0.0.1")
	https := 0
	for to, packet := range n.tap.packets() {
		switch a := to.Addr(); {
		case to == provedAddrs[0] || to == provedAddrs[1]:
		case a == ours && to.Port() >= 1024: // the runner or the facilitator
		case a == ours && to.Port() == 9: // the bootstrap server that does not exist
		case resolvers[a] && to.Port() == 53:
		case n.allowedPeers[to]:
			https++
		case to.Port() >= 32768 && (resolvers[a] || a.IsLoopback()): // answers over UDP, to the client's port
		default:
			t.Errorf("somebody sent to %s: %q", to, packet)
		}
	}
	if https < 50 && !incomplete {
		t.Errorf("only %d hosts were connected to: the tap is blind", https)
	}
}

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-shell") { // make simnet passes its variable RTT as -rtt, so the usage must explain RTT
		flag.Usage = func() { fmt.Fprintln(os.Stderr, "RTT is a duration, such as 50ms") }
	}
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run()) // short tests check the rows, but send no requests
	}
	// TestSimnet runs without a delay. With a delay, run only TestDelay.
	if f := flag.Lookup("test.run"); *rtt > 0 && !*shell && f != nil && f.Value.String() == "" {
		_ = f.Value.Set("^TestDelay$")
	}
	packages := []string{testbed.LocalRunner, testbed.AllFunctions, testbed.Dynalite}
	if *shell || *runs > 1 {
		packages = packages[:1] // the shell and TestDelay do not need the functions
	}
	os.Exit(testbed.Isolate(m, 48, packages...))
}

// shell makes the test binary open a shell in the internet instead of testing ("make simnet").
var shell = flag.Bool("shell", false, "open a shell in the internet, with the service running")

func openShell(t *testing.T, n *internet) {
	r := startRunner(t, n)
	if err := useResolvers(t.TempDir()); err != nil {
		fmt.Fprintln(os.Stderr, "dig and curl do not know this internet's names:", err)
	}
	fmt.Println("Names of this internet, one for each outcome:")
	shown := map[string]bool{}
	for _, r := range tableRows() {
		if outcome := fmt.Sprintf("%-17s %-22s", r.op, cmp.Or(r.want.code, "200")); !shown[outcome] {
			fmt.Println(outcome, r.domain, r.params)
			shown[outcome] = true
		}
	}
	if *rtt > 0 {
		fmt.Printf("\nEverything but the service and this shell is a round trip of %s away.\n", *rtt)
	}
	fmt.Printf("\nThe service is on %s (URL). Its log ends with this shell. For example:\n\n"+
		"  pay \"$URL/v1/tools/ssl-check?domain=expired.example.com\"\n  curl -I https://example.com/\n\n", r.url)
	cmd := exec.Command(cmp.Or(os.Getenv("SHELL"), "/bin/sh"))
	cmd.Env = append(os.Environ(), "URL="+r.url, "SSL_CERT_FILE="+n.ca.File, "CURL_CA_BUNDLE="+n.ca.File,
		"PATH="+testbed.Must(filepath.Abs("../../build"))+":"+os.Getenv("PATH"), "PS1=simnet$ ")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := n.namespace.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, cmd.Path+":", err) // usually the exit status of the last command in the shell
	}
}

// useResolvers makes the programs in this mount namespace use our resolvers.
func useResolvers(dir string) error {
	file := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver "+strings.Join(resolverAddrs(), "\nnameserver ")+"\n"), 0o600); err != nil {
		return err
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	return syscall.Mount(file, "/etc/resolv.conf", "", syscall.MS_BIND, "")
}

// TestRows checks that each operation has several rows, and that no two rows have the same name.
func TestRows(t *testing.T) {
	ops, names := map[string]int{}, map[string]bool{}
	for _, r := range tableRows() {
		if ops[r.op]++; names[r.String()] {
			t.Errorf("two rows are called %q", r)
		}
		names[r.String()] = true
	}
	for _, op := range catalog.All() {
		if op.Kind != catalog.SmokeTest && ops[op.Slug] < 5 {
			t.Errorf("tableRows in sites_linux_test.go has %d rows of %s, want 5 or more: the first is made for each operation", ops[op.Slug], op.Slug)
		}
	}
}

// tap sees every packet of the namespace that opens a TCP connection or carries UDP.
type tap struct {
	fd          int
	mu          sync.Mutex
	lastPackets map[netip.AddrPort][]byte // the beginning of the last packet to each address
}

// connectionFilter returns a packet filter (BPF) that accepts UDP, and TCP segments with SYN
// and without ACK, over IPv4 and IPv6. It captures only the beginning of a packet.
func connectionFilter() []syscall.SockFilter {
	const (
		loadByte   = syscall.BPF_LD | syscall.BPF_B | syscall.BPF_ABS
		loadAfterX = syscall.BPF_LD | syscall.BPF_B | syscall.BPF_IND
		headerToX  = syscall.BPF_LDX | syscall.BPF_B | syscall.BPF_MSH
		and        = syscall.BPF_ALU | syscall.BPF_AND | syscall.BPF_K
		equal      = syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K
		give       = syscall.BPF_RET | syscall.BPF_K
		udp, tcp   = 17, 6
	)
	return []syscall.SockFilter{
		{Code: loadByte, K: 0},
		{Code: and, K: 0xf0},
		{Code: equal, K: 0x40, Jf: 6}, // if the packet is not IPv4, jump to the check for IPv6
		{Code: loadByte, K: 9},
		{Code: equal, K: udp, Jt: 11},
		{Code: equal, K: tcp, Jf: 9},
		{Code: headerToX, K: 0},
		{Code: loadAfterX, K: 13},
		{Code: syscall.BPF_JMP | syscall.BPF_JA, K: 4}, // jump to the check of the TCP flags
		{Code: loadByte, K: 6},                         // for IPv6: the byte that names the next header
		{Code: equal, K: udp, Jt: 5},
		{Code: equal, K: tcp, Jf: 3},
		{Code: loadByte, K: 40 + 13},
		{Code: and, K: 0x12}, // the flags SYN and ACK
		{Code: equal, K: 0x02, Jt: 1},
		{Code: give, K: 0},
		{Code: give, K: 128},
	}
}

func newTap(t *testing.T) *tap {
	// A socket without a protocol receives nothing. So no packet arrives before the filter is
	// attached.
	fd := testbed.Must(syscall.Socket(syscall.AF_PACKET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0))
	filter := connectionFilter()
	program := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := syscall.Syscall6(syscall.SYS_SETSOCKOPT, uintptr(fd), syscall.SOL_SOCKET, syscall.SO_ATTACH_FILTER,
		uintptr(unsafe.Pointer(&program)), unsafe.Sizeof(program), 0); errno != 0 {
		t.Fatalf("tap: filter: %v", errno)
	}
	// Bursts need a large buffer. If this process may not force this size, the kernel reduces
	// it to the limit for all users. If the reduced buffer is too small, dropped reports the
	// lost packets.
	if syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, 16<<20) != nil {
		_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, 16<<20)
	}
	const all = 0x0300 // ETH_P_ALL in network order
	testbed.Check(syscall.Bind(fd, &syscall.SockaddrLinklayer{Protocol: all}))
	p := &tap{fd: fd, lastPackets: map[netip.AddrPort][]byte{}}
	packets, done := os.NewFile(uintptr(fd), "tap"), make(chan struct{})
	go func() {
		defer close(done)
		p.read(packets)
	}()
	t.Cleanup(func() {
		packets.Close()
		<-done
	})
	return p
}

// read records the packets that the tap sees, until the file is closed.
func (p *tap) read(packets io.Reader) {
	b := make([]byte, 256)
	for {
		n, err := packets.Read(b)
		if err != nil {
			return
		}
		if to, ok := destination(b[:n]); ok {
			p.mu.Lock()
			p.lastPackets[to] = bytes.Clone(b[:n])
			p.mu.Unlock()
		}
	}
}

func destination(b []byte) (to netip.AddrPort, ok bool) {
	var addr netip.Addr
	head := 40
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		head, addr = int(b[0]&0xf)*4, netip.AddrFrom4([4]byte(b[16:20]))
	case len(b) >= 40 && b[0]>>4 == 6:
		addr = netip.AddrFrom16([16]byte(b[24:40]))
	}
	if !addr.IsValid() || len(b) < head+4 {
		return to, false
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[head+2:])), true
}

// packets returns the addresses to which packets have been sent so far, each with the last of
// these packets.
func (p *tap) packets() map[netip.AddrPort][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.lastPackets)
}

// dropped returns how many packets the kernel could not deliver to the tap since the last call.
func (p *tap) dropped(t *testing.T) uint32 {
	const statistics = 6 // PACKET_STATISTICS
	var v struct{ packets, drops uint32 }
	size := uint32(unsafe.Sizeof(v))
	if _, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, uintptr(p.fd), syscall.SOL_PACKET, statistics,
		uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
		t.Fatalf("tap: statistics: %v", errno)
	}
	return v.drops
}

// proveTap connects to addresses that nothing else uses, checks that the tap has seen these
// connections, and returns the addresses.
func proveTap(t *testing.T, p *tap) []netip.AddrPort {
	own := []netip.AddrPort{netip.MustParseAddrPort("10.99.99.99:443"), netip.MustParseAddrPort("[fd99::99]:443")}
	for _, to := range own {
		conn, err := (&net.Dialer{Timeout: patience}).DialContext(t.Context(), "tcp", to.String())
		if err == nil {
			conn.Close()
			t.Fatalf("somebody listens on %s", to)
		}
	}
	limit := time.Now().Add(patience)
	for ; p.packets()[own[0]] == nil || p.packets()[own[1]] == nil; <-time.After(100 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("the tap did not see the connections to %v", own)
		}
	}
	return own
}
