/* nvidia-smi without a shell: answers of one GPU from NAME.answers ("field<TAB>value" a line), and the text of NAME.ARG for any
 * other first argument. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *slurp(const char *name, const char *ending)
{
    char path[512];
    snprintf(path, sizeof path, "%s.%s", name, ending);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return NULL;
    char *text = calloc(1, 1 << 20);
    if (fread(text, 1, (1 << 20) - 1, f) == 0)
        *text = 0;
    fclose(f);
    return text;
}

static const char *answer(const char *text, const char *field)
{
    static char value[512];
    size_t n = strlen(field);
    for (const char *line = text; line != NULL; line = strchr(line, '\n'), line = line == NULL ? NULL : line + 1) {
        if (strncmp(line, field, n) == 0 && line[n] == '\t') {
            snprintf(value, sizeof value, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
            return value;
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const char *name = "/usr/bin/nvidia-smi";
    char *answers = slurp(name, access("/tmp/busy", F_OK) == 0 ? "busy" : "answers"); /* which the load makes */
    if (answers == NULL || argc < 2)
        return 9;
    if (strcmp(argv[1], "--help-query-gpu") == 0) {
        for (char *line = strtok(answers, "\n"); line != NULL; line = strtok(NULL, "\n"))
            printf("\"%.*s\"\nWhat it is.\n\n", (int)strcspn(line, "\t"), line);
        return 0;
    }
    if (strncmp(argv[1], "--query-gpu=", 12) != 0) {
        char *text = slurp(name, argv[1]);
        return text == NULL || fputs(text, stdout) < 0;
    }
    char *header = argv[1] + 12, *fields = strdup(header);
    for (char *field = strtok(fields, ","); field != NULL; field = strtok(NULL, ",")) {
        if (answer(answers, field) == NULL) {
            printf("Field \"%s\" is not a valid field to query.\n", field);
            return 2;
        }
    }
    puts(header);
    fields = strdup(header);
    const char *between = "";
    for (char *field = strtok(fields, ","); field != NULL; field = strtok(NULL, ",")) {
        printf("%s%s", between, answer(answers, field));
        between = ", ";
    }
    puts("");
    return 0;
}
