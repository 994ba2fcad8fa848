package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var digTime = regexp.MustCompile(`Query time: ([0-9]+) usec`)

// dig reports the time of the question itself.
func dig(resolver string) look {
	return func(ctx context.Context, domain string) (time.Duration, error) {
		out, err := output(ctx, "dig", "-u", "+tries=1", "@"+resolver, domain, "A")
		if err != nil {
			return 0, err
		}
		m := digTime.FindStringSubmatch(out)
		if m == nil || !strings.Contains(out, "status: NOERROR") {
			return 0, errors.New("dig has no answer")
		}
		us, err := strconv.Atoi(m[1])
		return time.Duration(us) * time.Microsecond, err
	}
}

// curl reports the time of the transfer itself, redirects included.
func curl(option string) look {
	return func(ctx context.Context, domain string) (time.Duration, error) {
		out, err := output(ctx, "curl", option, "-sS", "--http1.1", "--max-redirs", "5", "-o", "/dev/null",
			"-w", "%{http_code} %{time_total}", "https://"+domain+"/")
		if err != nil {
			return 0, err
		}
		code, total, _ := strings.Cut(out, " ")
		if !strings.HasPrefix(code, "2") {
			return 0, fmt.Errorf("curl has status %s", code)
		}
		s, err := strconv.ParseFloat(total, 64)
		return time.Duration(s * float64(time.Second)), err
	}
}

// openssl reports no time, so its start counts, some milliseconds, but not how
// it says goodbye after it has printed the certificate.
func openssl(ctx context.Context, domain string) (took time.Duration, err error) {
	cmd := exec.CommandContext(ctx, "openssl", "s_client", "-connect", domain+":443", "-servername", domain)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if took == 0 && lines.Text() == "-----END CERTIFICATE-----" {
			took = time.Since(begun)
		}
	}
	if err := cmd.Wait(); err != nil {
		return 0, err
	}
	if took == 0 {
		return 0, errors.New("openssl has no certificate")
	}
	return took, nil
}

// output is what a tool prints; its input is empty.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		first, _, _ := strings.Cut(complaint.String(), "\n")
		return "", fmt.Errorf("%w %s", err, first)
	}
	return out.String(), nil
}
