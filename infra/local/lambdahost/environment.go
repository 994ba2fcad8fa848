package lambdahost

import (
	"fmt"
	"slices"
	"strconv"
)

// Where the functions are told to be. The account is the one of AWS's examples.
const (
	region  = "us-east-1"
	account = "123456789012"
)

// environment is what Lambda sets for a function on provided.al2023 (AWS:
// Lambda, defined runtime environment variables), then the function's own
// variables, which win. Nothing is inherited from this process. AWS_EXECUTION_ENV
// is not set: OS-only runtimes have none.
func environment(f Function, id int, api string) []string {
	env := map[string]string{
		"AWS_LAMBDA_RUNTIME_API":          api,
		"AWS_LAMBDA_FUNCTION_NAME":        f.Name,
		"AWS_LAMBDA_FUNCTION_VERSION":     "$LATEST",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": strconv.Itoa(f.Memory),
		"AWS_LAMBDA_INITIALIZATION_TYPE":  "on-demand",
		"AWS_LAMBDA_LOG_GROUP_NAME":       "/aws/lambda/" + f.Name,
		"AWS_LAMBDA_LOG_STREAM_NAME":      fmt.Sprintf("local/[$LATEST]%032x", id),
		"AWS_LAMBDA_LOG_FORMAT":           "JSON",
		"AWS_REGION":                      region,
		"AWS_DEFAULT_REGION":              region,
		"AWS_ACCESS_KEY_ID":               "local",
		"AWS_SECRET_ACCESS_KEY":           "local",
		"AWS_SESSION_TOKEN":               "local",
		"LAMBDA_TASK_ROOT":                f.Dir,
		"LAMBDA_RUNTIME_DIR":              "/var/runtime",
		"_HANDLER":                        f.Handler,
		"LANG":                            "en_US.UTF-8",
		"TZ":                              ":UTC",
		"PATH":                            "/usr/local/bin:/usr/bin:/bin:/opt/bin",
	}
	for name, value := range f.Env {
		env[name] = value
	}
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// arn is the function's name for AWS.
func arn(f Function) string {
	return "arn:aws:lambda:" + region + ":" + account + ":function:" + f.Name
}
