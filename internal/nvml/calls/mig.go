package calls

// migCalls find MIG devices and their instances.
var migCalls = []Call{
	{Function: "nvmlDeviceGetMaxMigDeviceCount"},
	{Function: "nvmlDeviceGetMigDeviceHandleByIndex"},
	{Function: "nvmlDeviceIsMigDeviceHandle", Unused: true, Key: "IsMigDeviceHandle"},
	{Function: "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", Unused: true},
	{Function: "nvmlDeviceGetGpuInstanceId"},
	{Function: "nvmlDeviceGetComputeInstanceId"},
	{Function: "nvmlDeviceGetAttributes", Newest: 2},
	{Function: "nvmlDeviceGetGpuInstances", Unused: true},
	{Function: "nvmlDeviceGetGpuInstanceById"},
	{Function: "nvmlGpuInstanceGetInfo", Key: "GpuInstanceInfo", Methods: names("GpuInstance.GetInfo")},
	{Function: "nvmlDeviceGetGpuInstanceProfileInfo"},
}
