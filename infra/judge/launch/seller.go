// Package launch starts sellers that are programs, and kills them.
package launch

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test/judge"
)

// Program is a seller that a command line starts. It implements judge.Seller. At each start,
// the placeholders {facilitator}, {node}, {upstream} and {price} in Command, Env and the
// templates of Files are replaced with the values in the judge's settings.
type Program struct {
	Command string   // the shell command that starts the seller; it must run as long as the seller runs
	Env     []string // NAME=value, in addition to the environment of this process
	Files   []string // TEMPLATE=TARGET, two paths: before each start, the filled-in TEMPLATE is written to TARGET
	Dir     string   // the folder in which the command runs; empty means the current folder
	Origin  string   // the origin at which the seller listens, such as http://127.0.0.1:8080
	// Ready is a request for finding out whether the seller is ready. A seller is ready if it
	// answers this request with a status below 500.
	Ready  *http.Request
	Within time.Duration // how long the seller may take to become ready
	Log    io.Writer     // receives the seller's output when the seller is killed; may be nil
}

// fillPlaceholders replaces the placeholders in a text.
func fillPlaceholders(text string, s judge.Settings) string {
	return strings.NewReplacer("{facilitator}", s.Facilitator, "{node}", s.Node, "{upstream}", s.Upstream, "{price}", s.Price).Replace(text)
}

// Start implements judge.Seller.
func (p *Program) Start(ctx context.Context, s judge.Settings) (judge.Instance, error) {
	if isListening(ctx, p.host()) {
		return nil, fmt.Errorf("another program listens at %s already: stop it, or have the seller listen elsewhere", p.host())
	}
	for _, file := range p.Files {
		if err := render(file, s); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command("sh", "-c", fillPlaceholders(p.Command, s)) //nolint:noctx // a context would kill only the shell, and not its whole process group
	cmd.Dir = p.Dir
	cmd.Env = os.Environ()
	for _, one := range p.Env {
		cmd.Env = append(cmd.Env, fillPlaceholders(one, s))
	}
	setProcessGroup(cmd)
	process, err := programs.StartWith(cmd, programs.Options{Most: 64 << 10})
	if err != nil {
		return nil, err
	}
	r := &startedSeller{Program: p, process: process}
	if err := r.untilReady(ctx); err != nil {
		r.Kill()
		return nil, err
	}
	return r, nil
}

// render fills in a template of Files, and writes the result to the template's target.
func render(file string, s judge.Settings) error {
	template, target, ok := strings.Cut(file, "=")
	if !ok {
		return fmt.Errorf("-file is %q, and must be TEMPLATE=TARGET", file)
	}
	text, err := os.ReadFile(template)
	if err != nil {
		return err
	}
	return os.WriteFile(target, []byte(fillPlaceholders(string(text), s)), 0o600)
}

func (p *Program) host() string {
	u, err := url.Parse(p.Origin)
	if err != nil {
		return p.Origin
	}
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "80")
	}
	return u.Host
}

// isListening reports whether a program listens at an address.
func isListening(ctx context.Context, address string) bool {
	dialer := net.Dialer{Timeout: time.Second}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	connection.Close()
	return true
}

// startedSeller is a started seller: the shell and all processes that it has started.
type startedSeller struct {
	*Program
	process *programs.Process // the shell
}

// Origin implements judge.Instance.
func (r *startedSeller) Origin() string { return r.Program.Origin }

// Kill implements judge.Instance. After the kill, it waits until no program listens at the
// seller's address, but not longer than r.Within.
func (r *startedSeller) Kill() {
	killGroup(r.process.Cmd)
	<-r.process.Gone()
	ctx, cancel := context.WithTimeout(context.Background(), r.Within)
	defer cancel()
	for isListening(ctx, r.host()) && ctx.Err() == nil {
		pause(ctx)
	}
	if r.Log != nil {
		fmt.Fprintf(r.Log, "%s\n", strings.TrimSpace(r.process.Log.String()))
	}
}

// untilReady waits until the seller answers its Ready request. It returns an error if the
// seller ends, or is not ready within r.Within.
func (r *startedSeller) untilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.Within)
	defer cancel()
	for {
		answers := r.isReady(ctx)
		select {
		case <-r.process.Gone(): // checked first: if the seller has ended, the answer came from another program
			return fmt.Errorf("the seller ended before it took requests at %s; it printed:\n%s", r.host(), &r.process.Log)
		default:
		}
		if answers {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the seller did not take requests at %s within %v; it printed:\n%s", r.host(), r.Within, &r.process.Log)
		}
		pause(ctx)
	}
}

// isReady reports whether the seller answers its Ready request with a status below 500.
func (r *startedSeller) isReady(ctx context.Context) bool {
	if !isListening(ctx, r.host()) {
		return false
	}
	request := r.Ready.Clone(ctx)
	if r.Ready.GetBody != nil {
		body, err := r.Ready.GetBody()
		if err != nil {
			return false
		}
		request.Body = body
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: r.Within}
	res, err := client.Do(request)
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode < http.StatusInternalServerError
}

// pause waits for a moment before the next try, or until the context ends.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}
