package calls

// sessionCalls concern no GPU, or find one.
var sessionCalls = []Call{
	{Function: "nvmlInit", Newest: 2, Required: true, System: true},
	{Function: "nvmlShutdown", Required: true, Key: "-"},
	{Function: "nvmlSystemGetDriverVersion", Required: true, Values: value, Text: true, System: true},
	{Function: "nvmlSystemGetCudaDriverVersion", Values: value, System: true},
	{Function: "nvmlSystemGetNVMLVersion", Values: value, Text: true, System: true},
	{Function: "nvmlDeviceGetCount", Newest: 2, Required: true, System: true, Methods: names("Interface.DeviceGetCount")},
	{Function: "nvmlDeviceGetHandleByIndex", Newest: 2, Required: true, System: true,
		Methods: names("Interface.DeviceGetHandleByIndex")},
	{Function: "nvmlDeviceGetHandleByUUID", Unused: true, System: true},
	{Function: "nvmlDeviceGetHandleByPciBusId", Newest: 2, Unused: true, System: true},
}
