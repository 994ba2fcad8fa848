package simnet

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// shell asks for a shell in the internet instead of the tests (make simnet).
var shell = flag.Bool("shell", false, "open a shell in the internet, with the service running")

// openShell runs the user's shell until it ends.
func openShell(t *testing.T, n *internet) {
	r := startRunner(t, n)
	pay, err := filepath.Abs(filepath.Join("..", "..", "build"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := useResolvers(dir); err != nil {
		fmt.Fprintln(os.Stderr, "dig and curl do not know this internet's names:", err)
	}
	list := namesByOperation(t)
	list.examples(os.Stdout)
	if err := list.command(dir); err != nil {
		fmt.Fprintln(os.Stderr, "there is no command names:", err)
	} else {
		fmt.Print("\nnames prints all names of this internet, names dns those for one tool.\n")
	}
	if *rtt > 0 {
		fmt.Printf("\nEverything but the service and this shell is a round trip of %s away.\n", *rtt)
	}
	fmt.Printf("\nThe service is on %s (URL). Its log ends with this shell. For example:\n\n"+
		"  pay \"$URL/v1/tools/ssl-check?domain=expired.example.com\"\n  curl -I https://example.com/\n\n", r.url)
	program := cmp.Or(os.Getenv("SHELL"), "/bin/sh")
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "URL="+r.url, "SSL_CERT_FILE="+n.ca.File, "CURL_CA_BUNDLE="+n.ca.File,
		"PATH="+pay+":"+dir+":"+os.Getenv("PATH"), "PS1=simnet$ ")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = n.far.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, program+":", err) // of the last command, mostly
	}
}

// useResolvers gives the programs of this mount namespace our resolvers.
func useResolvers(dir string) error {
	file := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver "+resolverAddrs()[0]+"\n"), 0o600); err != nil {
		return err
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	return syscall.Mount(file, "/etc/resolv.conf", "", syscall.MS_BIND, "")
}
