package deployed

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// Python returns a command that runs Python with the deployment tools: the SAM CLI, its
// translator, cfn-lint, and an emulator of AWS. The command gets no credentials or settings of
// the current user, and cannot ask an EC2 instance for credentials.
func Python(tb testing.TB, arguments ...string) *exec.Cmd {
	cmd := testbed.Command(tb, testbed.Python(tb, filepath.Join(tools(), "requirements.txt")), arguments...)
	cmd.Env = slices.DeleteFunc(cmd.Env, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "SAM_") || name == "HOME"
	})
	cmd.Env = append(cmd.Env, "HOME="+tb.TempDir(), "AWS_DEFAULT_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
		"SAM_CLI_TELEMETRY=0", "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// Emulator starts moto, an emulator of AWS, until the test ends, and returns its URL.
func Emulator(tb testing.TB) (url string) {
	return programs.StartPeer(tb, Python(tb, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"), " Running on ").URL
}

// Tool returns a command that runs one of the Python programs in testdata/python.
func Tool(tb testing.TB, name string, arguments ...string) *exec.Cmd {
	return Python(tb, append([]string{filepath.Join(tools(), name)}, arguments...)...)
}

// CLI returns a command that runs a shell script. When the script calls the AWS CLI, the
// requests go to the server at url instead of AWS.
func CLI(tb testing.TB, url, script string) *exec.Cmd {
	cmd := testbed.Command(tb, "sh", "-euc", script)
	// The script must not use the settings of the user, or reach AWS by mistake.
	cmd.Env = append(testbed.Environment(CLIVariables(tb, url)), "HOME="+tb.TempDir())
	return cmd
}

// CLIVariables returns the environment variables that CLI sets, except HOME.
func CLIVariables(tb testing.TB, url string) map[string]string {
	python := testbed.Python(tb, filepath.Join(testbed.Root(), "infra", "testbed", "deployed", "testdata", "awscli", "requirements.txt"))
	return map[string]string{
		"PATH":                        filepath.Dir(python) + string(filepath.ListSeparator) + os.Getenv("PATH"),
		"NO_PROXY":                    "127.0.0.1",
		"AWS_ENDPOINT_URL":            url,
		"AWS_EC2_METADATA_DISABLED":   "true",
		"AWS_DEFAULT_REGION":          "us-east-1",
		"AWS_CONFIG_FILE":             os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_ACCESS_KEY_ID":           "local",
		"AWS_SECRET_ACCESS_KEY":       "local",
		"PYTHONDONTWRITEBYTECODE":     "1",
	}
}

// tools returns the folder that has the Python programs and the list of the packages that they
// need.
func tools() string {
	return filepath.Join(testbed.Root(), "infra", "testbed", "deployed", "testdata", "python")
}
